"""Allocator port: a budget for bytes in flight, with memory where it is wanted."""

from __future__ import annotations

from typing import Protocol


class HostBuffer(Protocol):
    """A share of the budget, with memory if it was asked for. Given back once, by any thread."""

    @property
    def nbytes(self) -> int:
        """Bytes charged."""
        ...

    @property
    def memory(self) -> memoryview:
        """Writable 1-D bytes of length `nbytes`; empty where only budget was asked for."""
        ...

    def release(self) -> None:
        """Give budget and memory back. Idempotent, never raises."""
        ...


class HostAllocator(Protocol):
    """Bounds the bytes in flight of one process. Any thread may call it."""

    def acquire(self, nbytes: int, *, memory: bool) -> HostBuffer | None:
        """Charge *nbytes* to the budget; None under pressure.

        Never blocks. More than the whole budget is granted while nothing else is in flight, so that
        any single entry can pass.

        Args:
            nbytes: 0 or more.
            memory: whether memory is wanted too; pinned where the adapter pins.
        """
        ...

    @property
    def in_flight_nbytes(self) -> int:
        """Bytes charged now."""
        ...
