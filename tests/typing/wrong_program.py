"""What a user's type checker says of a wrong program.

Each line is wrong, and says so by ignoring exactly the error that must be reported: an ignore for which
there is no error is an error itself.
"""

from __future__ import annotations

import torch

import eccache


def run(cache: eccache.ECCacheEngine[torch.Tensor], config: eccache.CacheConfig) -> None:
    """One slip a line."""
    eccache.CacheConfig(local_dsk="/x")  # type: ignore[call-arg]
    eccache.CacheConfig(max_local_disk_size="64")  # type: ignore[arg-type]
    eccache.CacheConfig(durability="forever")  # type: ignore[arg-type]
    eccache.CacheConfig("/x")  # type: ignore[call-arg,arg-type]
    config.local_disk = "/x"  # type: ignore[misc]
    eccache.open_cache(config)  # type: ignore[call-arg]
    eccache.open_cache(config, model="m", encoder_dtype="half", identity={"a": 1})  # type: ignore[dict-item]
    cache.put("id", [1, 2])  # type: ignore[arg-type]
    cache.put(b"id", torch.zeros(1))  # type: ignore[arg-type]
    str(cache.get("id").shape)  # type: ignore[union-attr]
    cache.get("id", num_tokens="2")  # type: ignore[arg-type]
    cache.stats().hits = 1  # type: ignore[misc]
    str(eccache.no_such_name)  # type: ignore[attr-defined]
