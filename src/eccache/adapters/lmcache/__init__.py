"""LMCache's `StorageManager` as an entry store: whatever stands behind it becomes a tier.

The stored bytes are whole frames, under LMCache's own keys. LMCache is imported when a store is opened,
not before.
"""

from eccache.adapters.lmcache.allocator import LMCacheAllocator
from eccache.adapters.lmcache.opening import LMCacheSettings, names_a_place, open_lmcache_store
from eccache.adapters.lmcache.store import LMCacheStore

__all__ = [
    "LMCacheAllocator",
    "LMCacheSettings",
    "LMCacheStore",
    "names_a_place",
    "open_lmcache_store",
]
