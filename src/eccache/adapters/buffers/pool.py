"""A byte budget with a pool of buffers behind it.

Fresh pages cost several times what a copy into touched memory costs, so a released buffer is kept for
the next put of about its size, until `trim` is called when nothing is in flight.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

_SMALLEST = 1 << 16
_STEPS_PER_DOUBLING = 8
_NO_MEMORY = memoryview(bytearray())


def _size_class(nbytes: int) -> int:
    """Return the pool's buffer size for *nbytes*: at most an eighth above, so that sizes repeat."""
    if nbytes <= _SMALLEST:
        return _SMALLEST
    step = 1 << max(nbytes.bit_length() - _STEPS_PER_DOUBLING.bit_length(), 0)
    return -(-nbytes // step) * step


class PooledBuffer:
    """A share of a `PooledAllocator`'s budget. See `ports.allocator.HostBuffer`."""

    def __init__(self, pool: PooledAllocator, nbytes: int, block: memoryview | None) -> None:
        self._pool: PooledAllocator | None = pool
        self._block = block
        self.nbytes = nbytes
        self.memory = _NO_MEMORY if block is None else block[:nbytes]

    def release(self) -> None:
        """Give budget and memory back. Idempotent, never raises."""
        self.memory = _NO_MEMORY
        pool, self._pool = self._pool, None
        if pool is not None:
            pool._take_back(self.nbytes, self._block)  # noqa: SLF001 - two halves of one thing
            self._block = None

    def __del__(self) -> None:
        """Note what was never released, e.g. since its holder was interrupted.

        Without the lock, which this very thread may hold, or one that a fork has left behind. Its memory
        is not used again: somebody may still look at it.
        """
        if self._pool is not None:
            self._pool._forgotten.append(self.nbytes)  # noqa: SLF001 - as above


class PooledAllocator:
    """Bounds bytes in flight and reuses buffers. Implements `ports.allocator.HostAllocator`.

    Args:
        capacity_nbytes: the budget, above 0.
        make_memory: returns writable, 1-D memory of the given length, e.g. pinned; `bytearray` by
            default.
    """

    def __init__(
        self,
        capacity_nbytes: int,
        make_memory: Callable[[int], memoryview] = lambda nbytes: memoryview(bytearray(nbytes)),
    ) -> None:
        self._capacity = capacity_nbytes
        self._make_memory = make_memory
        self._lock = threading.Lock()
        self._in_flight = 0
        self._free: dict[int, list[memoryview]] = {}
        self._forgotten: deque[int] = deque()

    def acquire(self, nbytes: int, *, memory: bool) -> PooledBuffer | None:
        """Charge *nbytes*; None under pressure, also when the system has no memory left."""
        size = _size_class(nbytes)
        self._take_back_forgotten()
        with self._lock:
            if self._in_flight and self._in_flight + nbytes > self._capacity:
                return None
            self._in_flight += nbytes
            waiting = self._free.get(size) if memory else None
            block = waiting.pop() if waiting else None
        if memory and block is None:
            try:
                block = self._make_memory(size)
            except (MemoryError, RuntimeError):  # torch reports a failed allocation as RuntimeError
                self._take_back(nbytes, None)
                return None
        return PooledBuffer(self, nbytes, block)

    @property
    def in_flight_nbytes(self) -> int:
        """Bytes charged now."""
        self._take_back_forgotten()
        return self._in_flight

    def trim(self) -> None:
        """Give buffers that wait for reuse back to the system."""
        with self._lock:
            self._free.clear()

    def _take_back_forgotten(self) -> None:
        while self._forgotten:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._take_back(self._forgotten.popleft(), None)

    def _take_back(self, nbytes: int, block: memoryview | None) -> None:
        with self._lock:
            self._in_flight -= nbytes
            if block is not None:
                self._free.setdefault(len(block), []).append(block)
