"""The cache as it is measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import eccache
from bench.micro.peers import MODEL

if TYPE_CHECKING:
    import torch


def opened(folder: Path, **settings: Any) -> eccache.ECCacheEngine[torch.Tensor]:
    """Open a cache in *folder*, with room for everything that is measured."""
    config = eccache.CacheConfig(
        **{"local_disk": str(folder), "min_free_space_ratio": 0.0, **settings}
    )
    return eccache.open_cache(config, model=MODEL, encoder_dtype="bfloat16")


def entry_files(folder: Path) -> list[Path]:
    """Return the entries' files."""
    return sorted(path for path in folder.rglob("*.safetensors") if "@" in path.name)


def stored(cache: eccache.ECCacheEngine[torch.Tensor], mm_hash: str, tensor: torch.Tensor) -> None:
    """Put *tensor* and wait until it is visible.

    Raises:
        RuntimeError: it was not stored.
    """
    if not cache.put(mm_hash, tensor, borrow=True) or not cache.flush(120):
        raise RuntimeError(f"{mm_hash} was not stored; is the disk full?")
