"""What the cache is compared with: LMCache, vLLM's example connector, safetensors, and the bare machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from eccache.adapters.system import SystemFiles

if TYPE_CHECKING:
    import torch

MODEL: Final = "bench/model-7b"
PIECE_NBYTES: Final = 8 << 20
ATTEMPTS: Final = 100


@contextlib.contextmanager
def lmcache_engine(pool_gib: float, folder: Path | None = None) -> Iterator[Any]:
    """Open LMCache's encoder-cache engine; it must be closed, or the process never ends.

    Args:
        pool_gib: Its pool of host memory.
        folder: Its disk tier; None: memory alone.
    """
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")  # it would log a line for each put
    os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
    import torch
    from lmcache.v1.config import LMCacheEngineConfig, load_ec_engine_config
    from lmcache.v1.ec_engine import ECCacheEngine
    from lmcache.v1.metadata import LMCacheMetadata

    settings: dict[str, Any] = {"local_cpu": True, "max_local_cpu_size": pool_gib}
    if folder is not None:
        settings |= {"local_disk": str(folder), "max_local_disk_size": 16.0}
    config = load_ec_engine_config(LMCacheEngineConfig.from_defaults(**settings))
    metadata = LMCacheMetadata(
        model_name=MODEL,
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.bfloat16,
        kv_shape=(1, 2, 16, 1, 8),
    )
    engine = ECCacheEngine(config, metadata, torch.bfloat16)
    try:
        yield engine
    finally:
        engine.close()


def wait_until_on_disk(engine: Any, mm_hash: str) -> None:
    """Wait until LMCache's disk tier knows an entry, which it does once the file is written."""
    backend = engine._storage_manager.storage_backends["LocalDiskBackend"]
    key = engine._make_cache_key(mm_hash)
    while not backend.contains(key):
        time.sleep(0.0002)


def forget(engine: Any, mm_hash: str) -> None:
    """Remove an entry from every tier of LMCache."""
    engine._storage_manager.remove(engine._make_cache_key(mm_hash))


class ExampleConnector:
    """vLLM's example connector, called as its model runner would.

    Args:
        folder: Where it stores.
    """

    def __init__(self, folder: Path) -> None:
        import safetensors.torch  # noqa: F401 - the connector relies on somebody having imported it
        from vllm.distributed.ec_transfer.ec_connector import example_connector

        self._module = example_connector
        connector: Any = object.__new__(example_connector.ECExampleConnector)
        connector._storage_path = str(folder)
        connector._is_producer = connector._is_consumer = True
        connector._connector_metadata = None
        self._connector = connector

    def save(self, mm_hash: str, tensor: torch.Tensor) -> None:
        """Save, as after an encoder's run."""
        self._connector.save_caches({mm_hash: tensor}, mm_hash)

    def load(self, mm_hash: str, rows: int) -> Any:
        """Load, as before a forward pass. The bytes are mapped, not read."""
        metadata = self._module.ECExampleConnectorMetadata()
        metadata.add_mm_data(SimpleNamespace(mm_hash=mm_hash, num_token=rows))
        self._connector._connector_metadata = metadata
        cache: dict[str, Any] = {}
        self._connector.start_load_caches(cache)
        return cache[mm_hash]


def write_allocated(path: Path, data: memoryview) -> None:
    """Allocate a new file and write *data* into it: no checksum, no name in the end."""
    files = SystemFiles()
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    try:
        files.allocate(descriptor, data.nbytes)
        for start in range(0, data.nbytes, PIECE_NBYTES):
            os.pwrite(descriptor, data[start : start + PIECE_NBYTES], start)
    finally:
        os.close(descriptor)


def read_sequentially(path: Path, target: memoryview) -> None:
    """Read a whole file into *target*, in pieces, as the system reads ahead."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        done = 0
        while done < target.nbytes:
            done += os.preadv(descriptor, [target[done : done + PIECE_NBYTES]], done)
    finally:
        os.close(descriptor)


def drop_from_page_cache(path: Path) -> None:
    """Write *path* to the medium and drop its pages.

    Raises:
        RuntimeError: They are still there, e.g. on a file system in memory.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for _ in range(ATTEMPTS):  # a page that the kernel is about to use stays for a moment
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            try:
                os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
            except OSError:  # it is gone, or the file system can't tell
                return
            time.sleep(0.01)
        raise RuntimeError(f"{path} stays in the page cache; name a folder on a disk")
    finally:
        os.close(descriptor)
