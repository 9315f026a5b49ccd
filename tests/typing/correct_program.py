"""What a user's type checker makes of a right program: every name has the type that the docs say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

import torch

import eccache


def run() -> None:
    """The contract's example, with the type of every value."""
    config = eccache.load_config()
    assert_type(config, eccache.CacheConfig)
    config = eccache.CacheConfig(local_disk="/var/cache/ec", max_local_disk_size=64.0)
    assert_type(config.local_disk, str | None)
    assert_type(config.max_local_disk_size, float)
    assert_type(config.lmcache, Mapping[str, Any])

    with eccache.open_cache(
        config,
        model="Qwen/Qwen2.5-VL-7B-Instruct",
        encoder_dtype=torch.bfloat16,
        identity={"revision": "abc"},
    ) as cache:
        assert_type(cache, eccache.ECCacheEngine[torch.Tensor])
        assert_type(cache.put("id", torch.zeros(2, 3), borrow=True), bool)
        assert_type(cache.get("id"), torch.Tensor | None)
        assert_type(cache.get("id", device="cuda:0", num_tokens=2), torch.Tensor | None)
        assert_type(cache.contains("id"), bool)
        assert_type(cache.flush(timeout=1.0), bool)
        assert_type(cache.stats(), eccache.CacheStats)
        assert_type(cache.stats().hits, int)
        cache.close()


def handle() -> None:
    """Errors are caught by name."""
    try:
        run()
    except eccache.ConfigError as error:
        assert_type(error.remedy, str)
    except eccache.ECCacheError as error:
        assert_type(error.cause, str)


assert_type(eccache.__version__, str)
