"""What is told on the caller's thread, and what is left to a thread that may be lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import eccache
from eccache.adapters.system import SystemFiles
from eccache.app.prompt_answers import PromptAnswers
from eccache.domain.outcomes import LookupOutcome
from eccache.testing.frames import colliding_ref, frame_bytes, frame_of, ref_of
from tests.e2e.entry_files import entry_files
from tests.unit.disk.places import disk_store, put

REF = ref_of("an input")
WHOLE = frame_bytes(frame_of(REF))
LONG = 30.0


class Remembered:
    """A store that has one entry in memory."""

    def __init__(self, frame: bytes | None) -> None:
        self.frame = frame

    def contains(self, ref: object) -> bool:
        """Return whether it has it."""
        return self.frame is not None

    def cached_frame(self, ref: object) -> memoryview | None:
        """Return it."""
        return None if self.frame is None else memoryview(bytearray(self.frame))


def test_what_is_in_memory_is_verified_and_told() -> None:
    """The same reading as by the other way."""
    reading = PromptAnswers(Remembered(WHOLE)).read(REF)
    assert reading is not None
    assert reading.header is not None
    assert reading.payload is not None
    assert LookupOutcome.HIT is reading.outcome
    assert WHOLE == WHOLE[: reading.header.block_nbytes] + bytes(reading.payload)


@pytest.mark.parametrize("frame", [None, WHOLE[:-1], WHOLE[:-1] + b"!", b""])
def test_absence_and_damage_are_not_told(frame: bytes | None) -> None:
    """Whoever reads it properly tells a miss from a fault, and takes it out of sight."""
    assert PromptAnswers(Remembered(frame)).read(REF) is None


def test_another_inputs_entry_is_not_told() -> None:
    """Its name is the same, its identity isn't."""
    assert PromptAnswers(Remembered(WHOLE)).read(colliding_ref(REF)) is None


def test_what_the_local_store_has_not_may_be_elsewhere() -> None:
    """An absence is told only where there is no other store."""
    answers = [PromptAnswers(Remembered(frame)).contains(REF) for frame in (WHOLE, None)]
    tiered = [PromptAnswers(Remembered(f), alone=False).contains(REF) for f in (WHOLE, None)]
    unknown = (PromptAnswers().contains(REF), PromptAnswers().read(REF))
    assert ([True, False], [True, None], (None, None)) == (answers, tiered, unknown)


def test_small_entries_of_a_local_directory_are_read_on_the_callers_thread(tmp_path: Path) -> None:
    """Also when every other thread hangs; and no large one, for which that would be no gain."""
    config = eccache.CacheConfig(local_disk=str(tmp_path))
    small, large = torch.ones(2, 3), torch.ones(9 << 18)
    with eccache.open_cache(config, model="m", encoder_dtype="bfloat16") as cache:
        cache.put("small", small)
        cache.put("large", large)
        assert cache.flush(LONG)
        handed_over = cache._parts.calls._idle  # noqa: SLF001 - a call that was handed over leaves a thread
        for mm_hash, tensor, threads in (("small", small, 0), ("large", large, 1)):
            handed_over.clear()
            found = cache.get(mm_hash)
            assert found is not None
            assert torch.equal(tensor, found)
            assert threads == len(handed_over)


def test_a_damaged_small_entry_is_corrupt_and_goes(tmp_path: Path) -> None:
    """As a large one does."""
    config = eccache.CacheConfig(local_disk=str(tmp_path))
    with eccache.open_cache(config, model="m", encoder_dtype="bfloat16") as cache:
        cache.put("id", torch.ones(2))
        assert cache.flush(LONG)
        (file,) = entry_files(tmp_path)
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        assert cache.get("id") is None
        assert (1, 0) == (cache.stats().corrupt, cache.stats().misses)
    assert [] == entry_files(tmp_path)


def test_the_last_use_of_what_is_read_at_once_is_noted(tmp_path: Path) -> None:
    """Or entries that are used most would be evicted first."""
    config = eccache.CacheConfig(local_disk=str(tmp_path))
    with eccache.open_cache(config, model="m", encoder_dtype="bfloat16") as cache:
        cache.put("id", torch.ones(2))
        assert cache.flush(LONG)
        (file,) = entry_files(tmp_path)
        written = file.stat().st_mtime
        os.utime(file, (written - 60, written - 60))
        for _ in range(2):
            assert cache.get("id") is not None
        assert written <= file.stat().st_mtime


def test_a_real_store_tells_of_its_own_regular_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of FIFOs, links and what is not there; nor of others' files, of which the kernel tells nothing."""
    store = disk_store(tmp_path)
    put(store, REF)
    assert store.cached_frame(REF) is not None
    with monkeypatch.context() as patched:
        patched.setattr(SystemFiles, "user", lambda _: os.geteuid() + 1)
        assert store.cached_frame(REF) is None
    assert store.cached_frame(ref_of("another")) is None
    (file,) = entry_files(tmp_path)
    file.rename(tmp_path / "kept")
    file.symlink_to(tmp_path / "kept")
    assert store.cached_frame(REF) is None
    file.unlink()
    os.mkfifo(file)
    assert store.cached_frame(REF) is None
