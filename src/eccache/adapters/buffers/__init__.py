"""Host memory for bytes in flight."""

from eccache.adapters.buffers.pool import PooledAllocator

__all__ = ["PooledAllocator"]
