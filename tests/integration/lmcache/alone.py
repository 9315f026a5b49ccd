"""What LMCache's own encoder cache does, without eccache. Nothing here is asserted: it prints what happens.

    python -m tests.integration.lmcache.alone            every case, each in a process of its own
    python -m tests.integration.lmcache.alone evicted    one case

`docs/lmcache.md` has the answers of LMCache 0.5.6, beside what happens behind eccache.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 120.0
HANG_SECONDS = 10.0


def engine(**keys: object) -> Any:  # noqa: ANN401 - LMCache's
    """LMCache's encoder cache on what *keys* name."""
    import torch
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.ec_engine import ECCacheEngine
    from lmcache.v1.metadata import LMCacheMetadata

    config = LMCacheEngineConfig.from_dict({"max_local_cpu_size": 0.125} | keys)
    metadata = LMCacheMetadata("m", 1, 1, 0, 0, torch.uint8, (1, 1, 256, 1, 1), role="worker")
    return ECCacheEngine(config, metadata, torch.bfloat16)


def disk_engine(folder: Path) -> Any:  # noqa: ANN401 - as `engine`
    """LMCache's encoder cache on its memory and disk."""
    return engine(local_disk=str(folder), max_local_disk_size=1)


def tensor(value: int, mib: int = 8) -> Any:  # noqa: ANN401 - torch is imported late
    """A tensor of that many MiB."""
    import torch

    return torch.full((mib * 512, 1024), value, dtype=torch.bfloat16)


def settled(folder: Path, cache: Any) -> list[Path]:  # noqa: ANN401 - as `engine`
    """The files of *folder*, once LMCache has written them."""
    disk = cache._storage_manager.storage_backends["LocalDiskBackend"]  # noqa: SLF001 - LMCache's
    while disk.disk_worker.put_tasks:
        threading.Event().wait(0.01)
    return sorted(folder.iterdir())


def forget_memory(cache: Any) -> None:  # noqa: ANN401 - as `engine`
    """Let LMCache's memory hold nothing."""
    cache._storage_manager.storage_backends["LocalCPUBackend"].clear()  # noqa: SLF001 - LMCache's


def from_disk(cache: Any, mm_hash: str) -> Any:  # noqa: ANN401 - as `engine`
    """What LMCache reads when it is made to look at its disk."""
    key = cache._make_cache_key(mm_hash)  # noqa: SLF001 - LMCache's
    (found,) = cache._storage_manager.batched_get([key], location="LocalDiskBackend")  # noqa: SLF001
    return None if found is None else found.tensor


def got(cache: Any, mm_hash: str) -> Any:  # noqa: ANN401 - as `engine`
    """What LMCache's own `get` returns."""
    import torch

    return cache.get(mm_hash, torch.device("cpu"))


def evicted(folder: Path) -> str:
    """An entry that only the disk has left."""
    cache = disk_engine(folder)
    for number in range(40):
        cache.put(f"input {number}", tensor(number))
        settled(folder, cache)
    there = [number for number in range(40) if cache.contains(f"input {number}")]
    served = [number for number in there if got(cache, f"input {number}") is not None]
    return f"contains says yes to {len(there)} of 40, get returns {len(served)}"


def restart(folder: Path) -> str:
    """The same folder, opened again."""
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    files = settled(folder, cache)
    cache.close()
    later = disk_engine(folder)
    return f"{len(files)} file, contains {later.contains('a')}, get {got(later, 'a')}"


def second_process(folder: Path) -> str:
    """A scheduler that asks for what its worker stored."""
    worker, scheduler = disk_engine(folder), disk_engine(folder)
    worker.put("a", tensor(1))
    settled(folder, worker)
    return f"scheduler: contains {scheduler.contains('a')}"


def truncated(folder: Path) -> str:
    """A file that was cut in half."""
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    (file,) = settled(folder, cache)
    forget_memory(cache)
    cache.put("b", tensor(2))
    settled(folder, cache)
    cache._storage_manager.storage_backends["LocalCPUBackend"].clear()  # noqa: SLF001 - LMCache's
    os.truncate(file, file.stat().st_size // 2)
    found = from_disk(cache, "a")
    return f"returns a tensor of the values {sorted(set(found.flatten()[::4096].tolist()))}, put was 1.0"


def flipped(folder: Path) -> str:
    """A file of which one bit flipped."""
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    (file,) = settled(folder, cache)
    forget_memory(cache)
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    return f"returns a tensor that begins with {from_disk(cache, 'a').flatten()[0].item()}, put was 1.0"


def deleted(folder: Path) -> str:
    """A file that somebody deleted."""
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    (file,) = settled(folder, cache)
    forget_memory(cache)
    file.unlink()
    return f"contains {cache.contains('a')}, get: {from_disk(cache, 'a')}"


def revisions(folder: Path) -> str:
    """One input's outputs of two revisions of a model, which LMCache has one key for."""
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    cache.put("a", tensor(2))
    return f"put of 1.0, then of 2.0; get returns {got(cache, 'a').flatten()[0].item()}"


def collision(folder: Path) -> str:
    """Two inputs whose 64-bit hashes are equal, by force."""
    from lmcache.v1 import ec_engine

    ec_engine._stable_u64_from_str = lambda _: 1  # noqa: SLF001 - LMCache's
    cache = disk_engine(folder)
    cache.put("a", tensor(1))
    return f"put of a; get of b returns {got(cache, 'b').flatten()[0].item()}"


def close_at_once(folder: Path) -> str:
    """Thirty entries of 34 MB put, then `close`."""
    cache = engine(local_disk=str(folder), max_local_disk_size=4, max_local_cpu_size=1.25)
    accepted = sum(cache.put(f"input {number}", tensor(1, 34)) for number in range(30))
    cache.close()
    size = 34 << 20
    whole = [file for file in folder.iterdir() if file.stat().st_size == size]
    intact = sum(
        file.read_bytes() == tensor(1, 34).view(_int16()).numpy().tobytes() for file in whole
    )
    return f"{accepted} accepted, {len(list(folder.iterdir()))} files, {intact} with what was put"


def _int16() -> Any:  # noqa: ANN401 - torch is imported late
    import torch

    return torch.int16


def removals(folder: Path) -> str:
    """Entries that come and go on a disk of ten."""
    cache = engine(local_disk=str(folder), max_local_disk_size=80 / 1024)
    storage = cache._storage_manager  # noqa: SLF001 - LMCache's
    stored = 0
    for number in range(30):
        cache.put(f"input {number}", tensor(number))
        settled(folder, cache)
        key = cache._make_cache_key(f"input {number}")  # noqa: SLF001 - LMCache's
        stored += storage.contains(key, ["LocalDiskBackend"]) is not None
        storage.remove(key)
    return f"30 puts, each removed again: {stored} reached the disk"


@contextlib.contextmanager
def redis() -> Iterator[Any]:
    """A Redis of this case's own."""
    from tests.integration.lmcache.redis_server import RedisServer

    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()


def redis_close(_: Path) -> str:
    """`close` with a Redis."""
    with redis() as server:
        cache = engine(remote_url=server.url)
        return _ends(cache.close)


def redis_truncated(_: Path) -> str:
    """Values in Redis that are too short, one after the other."""
    with redis() as server:
        cache = engine(remote_url=f"{server.url}?socket_timeout=1")
        cache.put("a", tensor(1, 16))
        client = server.client()
        while not (names := [name for name in client.scan_iter() if name.endswith(b"kv_bytes")]):
            threading.Event().wait(0.01)
        client.set(names[0], b"short")
        key = cache._make_cache_key("a")  # noqa: SLF001 - LMCache's
        storage = cache._storage_manager  # noqa: SLF001 - LMCache's
        forget_memory(cache)
        for number in range(20):
            read = _ends(lambda: storage.batched_get([key], location="RemoteBackend"))
            if "hangs" in read:
                return f"read {number + 1} of 20 {read} (16 MiB values, pool of 128)"
        return "20 reads return"


def redis_dead(_: Path) -> str:
    """A put after Redis died."""
    with redis() as server:
        cache = engine(remote_url=f"{server.url}?socket_timeout=1")
        server.kill()
        return f"put {cache.put('a', tensor(1))}"


def exit_without_close(_: Path) -> str:
    """A program that does not call `close`."""
    program = (
        "from tests.integration.lmcache.alone import engine; engine(); print('end', flush=True)"
    )
    try:
        subprocess.run(
            [sys.executable, "-c", program],
            timeout=60,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return "its process never ends"
    return "its process ends"


def _ends(function: Callable[[], object]) -> str:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    return "hangs" if thread.is_alive() else "returns"


CASES: dict[str, Callable[[Path], str]] = {
    function.__name__: function
    for function in (
        evicted,
        restart,
        second_process,
        truncated,
        flipped,
        deleted,
        revisions,
        collision,
        close_at_once,
        removals,
        redis_close,
        redis_truncated,
        redis_dead,
        exit_without_close,
    )
}


def main(names: list[str]) -> None:
    """Run one case here, or all of them."""
    if len(names) == 1:
        os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            try:
                answer = CASES[names[0]](Path(folder))
            except Exception as error:  # noqa: BLE001 - an answer too
                answer = f"raises {type(error).__name__}"
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        os._exit(0)  # LMCache's threads would keep the process
    for name in names or CASES:
        command = [sys.executable, "-m", "tests.integration.lmcache.alone", name]
        try:
            done = subprocess.run(
                command,
                timeout=LIMIT_SECONDS,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            answer = (done.stdout.strip().splitlines() or ["no answer"])[-1]
        except subprocess.TimeoutExpired:
            answer = "hangs"
        sys.stdout.write(f"{name:20} {answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
