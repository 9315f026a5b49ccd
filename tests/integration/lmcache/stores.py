"""Stores on LMCache as the tests open them, and what the tests look at from behind."""

from __future__ import annotations

from typing import Any, cast

from lmcache.v1.storage_backend.storage_manager import StorageManager

from eccache.adapters.lmcache import LMCacheSettings, LMCacheStore, open_lmcache_store
from eccache.adapters.system import SystemClock

POOL_GIB = 0.125


def open_store(
    *,
    timeout_seconds: float = 10.0,
    close_timeout_seconds: float = 10.0,
    pool_size: float = POOL_GIB,
    **keys: object,
) -> LMCacheStore:
    """Open a store with a small pool, on what *keys* name."""
    settings = LMCacheSettings(
        model="test/model",
        keys=keys,
        pool_size=pool_size,
        timeout_seconds=timeout_seconds,
        close_timeout_seconds=close_timeout_seconds,
    )
    return open_lmcache_store(settings, SystemClock())


def storage_of(store: LMCacheStore) -> StorageManager:
    """LMCache's side of *store*."""
    return store._storage  # noqa: SLF001 - tests look behind


def used_nbytes(storage: StorageManager) -> int:
    """What is taken of LMCache's pool."""
    allocator = cast("Any", storage.allocator_backend).memory_allocator.pin_allocator
    addresses = allocator.address_manager
    return int(addresses.get_heap_size() - addresses.get_free_size())
