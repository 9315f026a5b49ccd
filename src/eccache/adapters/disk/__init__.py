"""The native store: files in a directory, shared by every process of the host."""

from eccache.adapters.disk.policy import DiskPolicy, Durability
from eccache.adapters.disk.shared_memory import open_shared_memory_store
from eccache.adapters.disk.store import DiskStore

__all__ = [
    "DiskPolicy",
    "DiskStore",
    "Durability",
    "open_shared_memory_store",
]
