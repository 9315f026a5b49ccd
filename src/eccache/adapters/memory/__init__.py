"""A store in one process's memory: the reference that says what a store does."""

from eccache.adapters.memory.store import MemoryStore

__all__ = ["MemoryStore"]
