"""What LMCache alone gets wrong comes out right: reads below its memory, damage, references, close."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eccache.adapters.lmcache import LMCacheSettings, LMCacheStore, open_lmcache_store
from eccache.adapters.lmcache.buffers import take_buffer
from eccache.adapters.lmcache.keys import cache_key
from eccache.adapters.system import SystemClock
from eccache.domain.entry_format import FrameError
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import ConfigError, StoreFault, StoreTimeout
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.frames import (
    MODEL,
    NAMESPACE,
    BrokenFrame,
    BrokenFrameError,
    frame_bytes,
    frame_of,
    is_intact,
    ref_of,
)
from tests.integration.lmcache.redis_server import RedisServer
from tests.integration.lmcache.stores import open_store, storage_of, used_nbytes

REF = ref_of("an input")
MIB_ROWS = 512  # of 1024 bfloat16: 1 MiB of payload


def frame_of_mib(ref: EntryRef, mib: int, seed: int = 0) -> FreshFrame:
    """A frame with that many MiB of payload."""
    return frame_of(ref, seed, rows=mib * MIB_ROWS, width=1024)


@pytest.fixture
def disk_store(tmp_path: Path) -> Iterator[LMCacheStore]:
    """A store on LMCache's memory and disk."""
    store = open_store(local_cpu=True, local_disk=str(tmp_path / "disk"), max_local_disk_size=1)
    yield store
    store.close()


def overwrite_pool(store: LMCacheStore) -> None:
    """Leave other bytes in the free part of LMCache's pool, where a short read would find its own."""
    ref = ref_of("something else")
    store.put(ref, frame_of_mib(ref, 8, seed=7))
    store.remove(ref, RemoveReason.REMOVED)


def holds(store: LMCacheStore, ref: EntryRef, seed: int = 0) -> bool:
    """Whether *store* serves *ref*'s frame, bit for bit."""
    lease = store.get(ref)
    return lease is not None and frame_bytes(frame_of(ref, seed)) == bytes(lease.view())


def test_what_lmcache_evicts_from_its_memory_is_still_served(disk_store: LMCacheStore) -> None:
    """Reads look below LMCache's own memory: an entry that only its disk has is a hit."""
    refs = [ref_of(f"input {number}") for number in range(40)]
    for ref in refs:
        disk_store.put(ref, frame_of_mib(ref, 8))
    memory = storage_of(disk_store).storage_backends["LocalCPUBackend"]
    in_memory = [ref for ref in refs if memory.contains(cache_key(ref))]
    assert len(in_memory) < 20
    for ref in refs:
        lease = disk_store.get(ref)
        assert lease is not None
        assert is_intact(lease.view(), ref)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped"])
def test_a_damaged_file_is_found_by_whoever_verifies(
    tmp_path: Path, disk_store: LMCacheStore, damage: str
) -> None:
    """LMCache returns what its pool held before; verification above it makes that a miss."""
    disk_store.put(REF, frame_of(REF))
    storage_of(disk_store).storage_backends["LocalCPUBackend"].remove(cache_key(REF))
    (file,) = (tmp_path / "disk").iterdir()
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        data[5000 % len(data)] ^= 1
    else:
        del data[0 if damage == "emptied" else 4096 :]
    file.write_bytes(data)
    overwrite_pool(disk_store)
    lease = disk_store.get(REF)
    assert lease is not None
    with pytest.raises(FrameError):
        is_intact(lease.view(), REF)
    assert PutOutcome.STORED is disk_store.put(REF, frame_of(REF))
    assert holds(disk_store, REF)


def test_a_deleted_file_is_a_miss(tmp_path: Path, disk_store: LMCacheStore) -> None:
    """And the entry can be stored again."""
    disk_store.put(REF, frame_of(REF))
    storage_of(disk_store).storage_backends["LocalCPUBackend"].remove(cache_key(REF))
    (file,) = (tmp_path / "disk").iterdir()
    file.unlink()
    assert disk_store.get(REF) is None
    assert PutOutcome.STORED is disk_store.put(REF, frame_of(REF))
    assert holds(disk_store, REF)


@pytest.mark.parametrize("how", ["removed", "file deleted"])
def test_removals_give_back_their_share_of_lmcaches_disk(tmp_path: Path, how: str) -> None:
    """However often entries come and go, the next one still finds room."""
    store = open_store(local_disk=str(tmp_path), max_local_disk_size=0.01)  # ten entries
    for number in range(30):
        ref = ref_of(f"input {number}")
        assert PutOutcome.STORED is store.put(ref, frame_of_mib(ref, 1))
        if how == "removed":
            assert store.remove(ref, RemoveReason.REMOVED)
        else:
            next(tmp_path.iterdir()).unlink()
            assert store.get(ref) is None
    assert 0 == storage_of(store).storage_backends["LocalDiskBackend"].current_cache_size
    store.close()


def test_revisions_of_a_model_never_meet(disk_store: LMCacheStore) -> None:
    """The namespace is part of LMCache's key, so neither pushes the other out."""
    other = Namespace.from_ingredients({"revision": "B"})
    refs = [ref_of("an input"), ref_of("an input", namespace=other)]
    for seed, ref in enumerate(refs):
        assert PutOutcome.STORED is disk_store.put(ref, frame_of(ref, seed))
    assert [True, True] == [holds(disk_store, ref, seed) for seed, ref in enumerate(refs)]
    keys = [cache_key(ref) for ref in refs]
    assert keys[0] != keys[1]
    assert f"@eccache%{NAMESPACE.fingerprint}" in str(keys[0] and keys[0].to_string())


def test_a_key_is_lmcaches_with_a_tag() -> None:
    """Model, sentinel world size and worker, hash and dtype as LMCache's own encoder cache has them."""
    key = cache_key(REF)
    assert key is not None
    assert f"{REF.key.to_string()}@eccache%{REF.namespace}" == key.to_string()


def test_a_dtype_that_lmcache_can_not_name_is_rejected(disk_store: LMCacheStore) -> None:
    """For such a model LMCache is no tier, and says so without an error."""
    ref = EntryRef.for_mm_hash(NAMESPACE, MODEL, "an input", "complex64")
    assert PutOutcome.REJECTED is disk_store.put(ref, frame_of(ref))
    assert (None, False) == (disk_store.get(ref), disk_store.contains(ref))
    assert not disk_store.remove(ref, RemoveReason.REMOVED)


def test_no_reference_is_left_behind(tmp_path: Path) -> None:
    """After puts, repeated puts, broken puts, reads and removals, LMCache's pool is as empty as before."""
    store = open_store(local_disk=str(tmp_path), remote_url=f"fs://host:0{tmp_path}/remote/")
    refs = [ref_of(f"input {number}") for number in range(5)]
    for turn in range(3):
        for ref in refs:
            store.put(ref, frame_of(ref, rows=1 + turn))
            with pytest.raises(BrokenFrameError):
                store.put(ref, BrokenFrame(frame_of(ref, rows=50)))
            store.get(ref)
    for ref in refs:
        store.remove(ref, RemoveReason.REMOVED)
        store.get(ref)
    assert 0 == used_nbytes(storage_of(store))
    store.close()


def test_what_can_never_fit_is_rejected_and_what_does_not_fit_now_fails(tmp_path: Path) -> None:
    """A frame above LMCache's pool is counted; one that finds it taken is a fault, and nothing waits."""
    store = open_store(local_disk=str(tmp_path), pool_size=1 / 64)
    assert PutOutcome.REJECTED is store.put(REF, frame_of_mib(REF, 16))
    assert 1 == store.stats().rejected
    taken = take_buffer(storage_of(store), 10 << 20)
    assert taken is not None
    with pytest.raises(StoreFault, match="no room"):
        store.put(REF, frame_of_mib(REF, 8))
    taken.ref_count_down()
    assert PutOutcome.STORED is store.put(REF, frame_of_mib(REF, 8))
    taken = take_buffer(storage_of(store), 10 << 20)
    assert taken is not None
    with pytest.raises(StoreFault, match="Memory allocation failed"):
        store.get(REF)
    taken.ref_count_down()
    store.close()


def test_a_write_that_lmcache_loses_is_a_fault_in_time(tmp_path: Path) -> None:
    """LMCache says nothing of a failed write and holds the entry to be under way for ever."""
    folder = tmp_path / "disk"
    store = open_store(local_disk=str(folder), timeout_seconds=0.3)
    folder.rmdir()
    with pytest.raises(StoreTimeout):
        store.put(REF, frame_of(REF))
    folder.mkdir()
    other = ref_of("another")
    assert PutOutcome.STORED is store.put(other, frame_of(other))
    with pytest.raises(StoreTimeout):
        store.put(REF, frame_of(REF))
    store.close()


def test_entries_are_seen_by_every_process_and_after_a_restart(redis_server: RedisServer) -> None:
    """What a worker stored its scheduler finds; and so does another server, after both are gone."""
    writer, reader = (open_store(remote_url=redis_server.url) for _ in range(2))
    writer.put(REF, frame_of(REF))
    assert reader.contains(REF)
    assert holds(reader, REF)
    writer.close()
    reader.close()
    later = open_store(remote_url=redis_server.url)
    assert holds(later, REF)
    later.close()


def test_close_waits_for_puts_that_are_under_way(tmp_path: Path) -> None:
    """Every put that said STORED is there, whole, after a close that came at once."""
    url = f"fs://host:0{tmp_path}/"
    store = open_store(remote_url=url, pool_size=0.5)
    refs = [ref_of(f"input {number}") for number in range(30)]
    outcomes: dict[EntryRef, object] = {}
    begun = threading.Semaphore(0)

    def put(ref: EntryRef) -> None:
        frame = frame_of_mib(ref, 4)
        begun.release()
        try:
            outcomes[ref] = store.put(ref, frame)
        except StoreFault as fault:
            outcomes[ref] = fault

    threads = [threading.Thread(target=put, args=(ref,)) for ref in refs]
    for thread in threads:
        thread.start()
    for _ in refs:
        begun.acquire()
    store.close()
    for thread in threads:
        thread.join()
    stored = [ref for ref, outcome in outcomes.items() if outcome is PutOutcome.STORED]
    assert all(
        outcome is PutOutcome.STORED or "closed" in str(outcome) for outcome in outcomes.values()
    )
    later = open_store(remote_url=url)
    for ref in stored:
        lease = later.get(ref)
        assert lease is not None
        assert is_intact(lease.view(), ref)
    later.close()
    assert [] == list(tmp_path.glob("*.tmp"))


def test_a_storage_of_the_callers_is_used_and_left_open(tmp_path: Path) -> None:
    """Whoever built it closes it."""
    owner = open_store(local_disk=str(tmp_path))
    storage = storage_of(owner)
    guest = LMCacheStore(
        storage,
        clock=SystemClock(),
        timeout_seconds=10,
        close_timeout_seconds=10,
        owns_storage=False,
    )
    guest.put(REF, frame_of(REF))
    guest.close()
    assert storage.thread.is_alive()
    assert holds(owner, REF)
    owner.close()
    assert not storage.thread.is_alive()
    assert storage.loop.is_closed()


def descriptors_and_threads() -> tuple[int, int]:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_closing_leaves_nothing_open(tmp_path: Path) -> None:
    """No thread and no descriptor stays, however often a store is opened."""
    open_store(local_disk=str(tmp_path)).close()
    before = descriptors_and_threads()
    for _ in range(3):
        store = open_store(local_disk=str(tmp_path), remote_url=f"fs://host:0{tmp_path}/")
        store.put(REF, frame_of(REF))
        store.close()
        del store
        gc.collect()
    assert before == descriptors_and_threads()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"max_local_cpu_size": "much"}, "does not accept"),
        ({"extra_config": "{"}, "does not accept"),
        ({"cache_policy": "NEWEST"}, "NEWEST"),
    ],
)
def test_a_configuration_that_lmcache_refuses_is_a_config_error(
    keys: dict[str, object], said: str
) -> None:
    """With LMCache's own words and a remedy."""
    settings = LMCacheSettings(
        model="m", keys=keys, pool_size=0.01, timeout_seconds=1, close_timeout_seconds=1
    )
    with pytest.raises((ConfigError, ValueError), match=said):
        open_lmcache_store(settings, SystemClock())


def test_lmcaches_variable_for_the_process_is_taken_back() -> None:
    """LMCache would make every Prometheus client of the process and its children write files."""
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)
    open_store(local_cpu=True).close()
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_an_lmcache_without_a_place_for_entries_is_refused() -> None:
    """It would take every entry and have none."""
    with pytest.raises(ConfigError, match="no place for entries"):
        open_store()


WITHOUT_LMCACHE = """
import sys
sys.modules["lmcache"] = None
from eccache.adapters.lmcache import LMCacheSettings, open_lmcache_store
from eccache.adapters.system import SystemClock
from eccache.domain.errors import ConfigError
settings = LMCacheSettings(model="m", keys={}, pool_size=1, timeout_seconds=1, close_timeout_seconds=1)
try:
    open_lmcache_store(settings, SystemClock())
except ConfigError as error:
    assert "pip install --no-deps lmcache" in error.remedy, error
    print("refused")
"""


def test_without_lmcache_the_error_says_how_to_install_it() -> None:
    """The adapter can be imported, and what is missing is named."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LMCACHE], capture_output=True, text=True, check=False
    )
    assert ("refused\n", "") == (done.stdout, done.stderr)
