"""The library as its users open it: on a real directory, and in the host's memory."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eccache
from eccache.adapters.memory import MemoryStore
from eccache.adapters.system import SystemFiles
from eccache.app.bootstrap import stores
from eccache.testing.clock import ManualClock

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
OUTPUT = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)
LONG = 30.0


def config_at(root: Path) -> eccache.CacheConfig:
    """A small cache in a directory."""
    return eccache.CacheConfig(local_disk=str(root), max_local_disk_size=0.1)


def opened(
    root: Path, dtype: object = "bfloat16", **identity: str
) -> eccache.ECCacheEngine[torch.Tensor]:
    """A cache in a directory."""
    return eccache.open_cache(config_at(root), model=MODEL, encoder_dtype=dtype, identity=identity)


def files_under(root: Path) -> list[Path]:
    """Every entry file under *root*."""
    return sorted(root.rglob("*.safetensors"))


def test_a_new_process_gets_what_another_put(tmp_path: Path) -> None:
    """A restart, or another replica, starts warm and bit-equal."""
    program = f"""
import torch, eccache
config = eccache.CacheConfig(local_disk={str(tmp_path)!r}, max_local_disk_size=0.1)
cache = eccache.open_cache(
    config, model={MODEL!r}, encoder_dtype=torch.bfloat16, identity={{"revision": "a"}})
assert cache.put("h", torch.arange(12, dtype=torch.bfloat16).reshape(4, 3))
assert cache.flush(30)
import os; os.kill(os.getpid(), 9)
"""
    died = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert -9 == died.returncode
    with opened(tmp_path, revision="a") as cache:
        found = cache.get("h")
        assert found is not None
        assert torch.equal(OUTPUT, found)
    with opened(tmp_path, revision="b") as cache:
        assert cache.get("h") is None


def test_the_file_has_the_contracts_name(tmp_path: Path) -> None:
    """Model, sentinels, hash and dtype stand in the name, escaped."""
    with opened(tmp_path) as cache:
        cache.put("h", OUTPUT)
    (file,) = files_under(tmp_path)
    assert "Qwen%2FQwen2.5-VL-7B-Instruct@1@0@aaa9402664f1a41f@bfloat16.safetensors" == file.name


def test_an_entry_put_under_one_precision_is_a_miss_under_another(tmp_path: Path) -> None:
    """float16 is never served as bfloat16; what is stored keeps its own dtype."""
    half = OUTPUT.to(torch.float16)
    with opened(tmp_path, torch.float16) as cache:
        cache.put("h", half)
    with opened(tmp_path, "bfloat16") as cache:
        assert cache.get("h") is None
        cache.put("h", OUTPUT.to(torch.float32))
        cache.flush(LONG)
        found = cache.get("h")
        assert found is not None
        assert torch.float32 == found.dtype


def test_an_epoch_separates(tmp_path: Path) -> None:
    """An operator who raises the epoch starts anew."""
    with opened(tmp_path) as cache:
        cache.put("h", OUTPUT)
    raised = eccache.CacheConfig(local_disk=str(tmp_path), max_local_disk_size=0.1, epoch="2")
    with eccache.open_cache(raised, model=MODEL, encoder_dtype="bfloat16") as cache:
        assert cache.get("h") is None


HOSTILE = [
    "../../x",
    "/etc/x",
    "a/b",
    "nul\0",
    "new\nline",
    "x" * 300,
    "y" * 10_000_000,
    "\ud800\udfff",
    "",
    ".",
    "..",
    "%2F",
    "\U0001f600",
]


@pytest.mark.parametrize("mm_hash", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_id_is_stored_inside_the_root(tmp_path: Path, mm_hash: str) -> None:
    """No id reaches the file system as a path."""
    outside = set(tmp_path.parent.iterdir())
    with opened(tmp_path / "root") as cache:
        assert cache.put(mm_hash, OUTPUT)
        assert cache.flush(LONG)
        found = cache.get(mm_hash)
        assert found is not None
        assert torch.equal(OUTPUT, found)
    assert 1 == len(files_under(tmp_path / "root"))
    assert outside == set(tmp_path.parent.iterdir())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.text(st.characters(exclude_categories=[]), max_size=30))
def test_any_text_is_an_id(tmp_path: Path, mm_hash: str) -> None:
    """Whatever an id holds, what was put is what comes back."""
    with opened(tmp_path) as cache:
        assert cache.put(mm_hash, OUTPUT)
        assert cache.flush(LONG)
        found = cache.get(mm_hash)
        assert found is not None
        assert torch.equal(OUTPUT, found)


def test_close_at_once_leaves_every_entry_whole(tmp_path: Path) -> None:
    """Pending writes are finished, not torn."""
    tensors = {f"h{n}": torch.full((1000, 1700), n, dtype=torch.bfloat16) for n in range(30)}
    cache = opened(tmp_path)
    for mm_hash, tensor in tensors.items():
        assert cache.put(mm_hash, tensor)
    cache.close()
    with opened(tmp_path) as cache:
        for mm_hash, tensor in tensors.items():
            found = cache.get(mm_hash)
            assert found is not None
            assert torch.equal(tensor, found)


def test_a_store_built_elsewhere_is_used_and_left_open(tmp_path: Path) -> None:
    """An adapter of one's own is passed in, and stays the caller's."""
    store = MemoryStore(capacity_nbytes=1 << 20, clock=ManualClock())
    cache = eccache.open_cache(
        config_at(tmp_path), model=MODEL, encoder_dtype="bfloat16", store=store
    )
    cache.put("h", OUTPUT)
    cache.close()
    assert 1 == store.stats().entries
    assert [] == files_under(tmp_path)


def test_a_cache_that_is_switched_off_stores_nothing(tmp_path: Path) -> None:
    """`enabled=False` is all misses, and no file."""
    config = eccache.CacheConfig(local_disk=str(tmp_path), enabled=False)
    with eccache.open_cache(config, model=MODEL, encoder_dtype="bfloat16") as cache:
        assert cache.put("h", OUTPUT)
        assert cache.flush(LONG)
        assert cache.get("h") is None
        assert not cache.contains("h")
        assert 1 == cache.stats().rejected
    assert [] == list(tmp_path.iterdir())


def test_without_a_disk_entries_live_in_the_hosts_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory-only store is the same store, on a directory of one's own in memory."""
    assert f"/dev/shm/eccache-{os.geteuid()}" == stores.shared_memory_root()  # noqa: S108
    monkeypatch.setattr(stores, "shared_memory_root", lambda: str(tmp_path / "shm"))
    config = eccache.CacheConfig(max_local_cpu_size=0.01)
    for _ in range(2):
        with eccache.open_cache(config, model=MODEL, encoder_dtype="bfloat16") as cache:
            cache.put("h", OUTPUT)
            cache.flush(LONG)
            assert cache.get("h") is not None
    assert 1 == len(files_under(tmp_path / "shm"))


@pytest.mark.parametrize(
    ("model", "dtype", "cause"),
    [("", "bfloat16", "model name"), (MODEL, "bfloat61", "unknown dtype"), (MODEL, 7, "unknown")],
)
def test_what_can_never_work_is_refused_when_opened(
    tmp_path: Path, model: str, dtype: object, cause: str
) -> None:
    """A wrong dtype or model is found at once, not at the first put."""
    with pytest.raises(ValueError, match=cause):
        eccache.open_cache(config_at(tmp_path), model=model, encoder_dtype=dtype)


def test_an_identity_is_text(tmp_path: Path) -> None:
    """A number in an identity would be text in another program; it is refused."""
    with pytest.raises(TypeError, match="mapping of str to str"):
        eccache.open_cache(
            config_at(tmp_path),
            model=MODEL,
            encoder_dtype="bfloat16",
            identity={"revision": 5},  # type: ignore[dict-item]
        )


def test_importing_the_package_imports_no_framework() -> None:
    """`import eccache` is free; its names are loaded at first use."""
    program = (
        "import sys, eccache; dir(eccache); loaded = set(sys.modules)"
        "; assert not loaded & {'torch', 'attrs', 'attr', 'structlog', 'yaml'}, loaded"
        "; assert eccache.CacheConfig and eccache.open_cache and eccache.load_config"
        "; assert not hasattr(eccache, 'nonsense')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_local_directory_is_asked_for_a_name_on_the_callers_thread(tmp_path: Path) -> None:
    """`contains` takes microseconds there; a store that was built elsewhere is asked with a time limit."""
    config = eccache.CacheConfig(local_disk=str(tmp_path))
    with eccache.open_cache(config, model="m", encoder_dtype="bfloat16") as cache:
        cache.put("id", torch.ones(2))
        assert cache.flush()
        handed_over = cache._parts.calls._idle  # noqa: SLF001 - a call that was handed over leaves a thread
        handed_over.clear()
        assert (True, False) == (cache.contains("id"), cache.contains("absent"))
        assert [] == handed_over
        store = cache._parts.store  # noqa: SLF001
    with eccache.open_cache(config, model="m", encoder_dtype="bfloat16", store=store) as cache:
        assert cache.contains("id")
        assert 1 == len(cache._parts.calls._idle)  # noqa: SLF001


def test_a_forked_process_opens_the_store_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child has a store of its own; where that can't be had it is too late to stop, and all is a miss."""
    memory = MemoryStore(capacity_nbytes=1 << 20, clock=ManualClock())
    elsewhere = eccache.open_cache(
        config_at(tmp_path / "unused"), model=MODEL, encoder_dtype="bfloat16", store=memory
    )
    with opened(tmp_path / "root") as cache, elsewhere:
        assert cache.put("h", OUTPUT)
        assert cache.flush(LONG)
        make = cache._parts.made_anew  # noqa: SLF001 - tests look behind
        again = elsewhere._parts.made_anew  # noqa: SLF001
        assert make is not None
        assert again is not None
        assert again().store is memory
        assert make().store.contains(cache.ref("h"))
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        refused = make()
        assert not refused.store.contains(cache.ref("h"))
        assert 1 == refused.telemetry.totals()["faults:fork"]


def test_a_directory_whose_file_system_hangs_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A mount that does not answer when a server starts costs misses, and is told with a remedy."""
    let_go, hung = threading.Event(), threading.Event()

    def hang(_: SystemFiles, __: str) -> os.stat_result:
        hung.set()
        assert let_go.wait(LONG)
        raise OSError(errno.EIO, "let go")

    monkeypatch.setattr(SystemFiles, "status", hang)
    config = attrs.evolve(config_at(tmp_path), tier_open_timeout_seconds=0.05)
    with eccache.open_cache(config, model=MODEL, encoder_dtype="bfloat16") as cache:
        assert hung.is_set()
        assert "store.root.hangs" in caplog.text
        assert str(tmp_path) in caplog.text
        assert cache.put("h", OUTPUT)
        assert cache.flush(LONG)
        assert cache.get("h") is None
    let_go.set()
