"""An allocator that counts what is charged, to put under a host framework under test."""

from __future__ import annotations

import threading


class CountedBuffer:
    """Implements `ports.allocator.HostBuffer`.

    Args:
        allocator: who counts.
        nbytes: bytes charged.
        memory: whether there is memory too.
    """

    def __init__(self, allocator: CountingAllocator, nbytes: int, *, memory: bool) -> None:
        self._allocator: CountingAllocator | None = allocator
        self.nbytes = nbytes
        self.memory = memoryview(bytearray(nbytes if memory else 0))

    def release(self) -> None:
        """Give the bytes back, once."""
        allocator, self._allocator = self._allocator, None
        if allocator is not None:
            allocator.charge(-self.nbytes)


class CountingAllocator:
    """Implements `ports.allocator.HostAllocator` without a pool. Any thread may call it.

    Args:
        capacity_nbytes: what may be in flight, without exception.
    """

    def __init__(self, capacity_nbytes: int = 1 << 30) -> None:
        self._capacity_nbytes = capacity_nbytes
        self._lock = threading.Lock()
        self._in_flight_nbytes = 0

    def acquire(self, nbytes: int, *, memory: bool) -> CountedBuffer | None:
        """Charge *nbytes*; None where that is more than there is room for."""
        with self._lock:
            if self._in_flight_nbytes + nbytes > self._capacity_nbytes:
                return None
            self._in_flight_nbytes += nbytes
        return CountedBuffer(self, nbytes, memory=memory)

    def charge(self, nbytes: int) -> None:
        """Add *nbytes*, which may be negative, to what is in flight."""
        with self._lock:
            self._in_flight_nbytes += nbytes

    @property
    def in_flight_nbytes(self) -> int:
        """Bytes charged now."""
        return self._in_flight_nbytes
