"""Host memory for bytes in flight, from LMCache's pool."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from eccache.adapters.lmcache.buffers import give_back, take_buffer

if TYPE_CHECKING:
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.storage_backend.storage_manager import StorageManager


class PoolBuffer:
    """Implements `ports.allocator.HostBuffer`."""

    def __init__(
        self,
        allocator: LMCacheAllocator,
        nbytes: int,
        memory: memoryview | None,
        buffer: MemoryObj | None,
    ) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._allocator: LMCacheAllocator | None = allocator
        self._buffer = buffer
        self._lock = threading.Lock()

    @property
    def memory(self) -> memoryview | None:
        """Writable 1-D bytes of length `nbytes`; None where only budget was asked for, or after `release`."""
        return self._memory

    def release(self) -> None:
        """Give budget and memory back."""
        with self._lock:
            allocator, self._allocator = self._allocator, None
        if allocator is None:
            return
        self._memory = None
        if self._buffer is not None:
            give_back(self._buffer)
        allocator.take_back(self.nbytes)


class LMCacheAllocator:
    """Implements `ports.allocator.HostAllocator` on a storage manager's pool, pinned where CUDA is.

    Args:
        storage: whose pool it is. It must stay open for as long as a buffer is out.
        budget_nbytes: bytes that may be in flight, with or without memory.
    """

    def __init__(self, storage: StorageManager, budget_nbytes: int) -> None:
        self._storage = storage
        self._budget_nbytes = budget_nbytes
        self._lock = threading.Lock()
        self._in_flight_nbytes = 0

    @property
    def in_flight_nbytes(self) -> int:
        """Bytes charged now."""
        return self._in_flight_nbytes

    def acquire(self, nbytes: int, *, memory: bool) -> PoolBuffer | None:
        """Charge *nbytes* to the budget; None under pressure, of the budget or of LMCache's pool.

        What is larger than the whole pool gets ordinary memory while nothing else is in flight.
        """
        with self._lock:
            alone = self._in_flight_nbytes == 0
            if not alone and self._in_flight_nbytes + nbytes > self._budget_nbytes:
                return None
            self._in_flight_nbytes += nbytes
        try:
            result = self._buffer(nbytes, memory=memory, alone=alone)
        except BaseException:
            self.take_back(nbytes)
            raise
        if result is None:
            self.take_back(nbytes)
        return result

    def take_back(self, nbytes: int) -> None:
        """Credit *nbytes* to the budget. For `PoolBuffer` alone."""
        with self._lock:
            self._in_flight_nbytes -= nbytes

    def _buffer(self, nbytes: int, *, memory: bool, alone: bool) -> PoolBuffer | None:
        if not memory:
            return PoolBuffer(self, nbytes, None, None)
        buffer = take_buffer(self._storage, nbytes) if nbytes else None
        if buffer is not None:
            return PoolBuffer(self, nbytes, memoryview(buffer.byte_array).cast("B"), buffer)
        if nbytes == 0 or alone:
            return PoolBuffer(self, nbytes, memoryview(bytearray(nbytes)), None)
        return None
