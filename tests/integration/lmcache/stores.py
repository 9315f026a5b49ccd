"""Stores on LMCache as the tests open them."""

from __future__ import annotations

from eccache.adapters.lmcache import LMCacheSettings, LMCacheStore, open_lmcache_store
from eccache.adapters.system import SystemClock

POOL_GIB = 0.125


def open_store(
    *, timeout_seconds: float = 10.0, close_timeout_seconds: float = 10.0, **keys: object
) -> LMCacheStore:
    """Open a store with a small pool, on what *keys* name."""
    settings = LMCacheSettings(
        model="test/model",
        keys=keys,
        pool_size=POOL_GIB,
        timeout_seconds=timeout_seconds,
        close_timeout_seconds=close_timeout_seconds,
    )
    return open_lmcache_store(settings, SystemClock())
