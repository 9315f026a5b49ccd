"""Shared-copy port: private memory of one process that its worker processes can map.

A promised copy lives here: once sealed, nothing that happens to a file, or in any process, changes it.
"""

from __future__ import annotations

from typing import Protocol


class SharedCopy(Protocol):
    """One copy. Filled by one thread, then sealed; `close` may come from any thread."""

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        ...

    @property
    def pid(self) -> int:
        """The process that holds it."""
        ...

    @property
    def fd(self) -> int:
        """Its descriptor in that process, unused for anything else until `close`."""
        ...

    @property
    def memory(self) -> memoryview:
        """Writable 1-D bytes, until `seal`."""
        ...

    def seal(self) -> None:
        """End writing for good. `memory` may not be touched any more.

        Raises:
            StoreFault: it can't be sealed.
        """
        ...

    def close(self) -> None:
        """Give the memory back; a worker that has mapped it keeps its mapping. Idempotent, never raises."""
        ...


class SharedCopies(Protocol):
    """Makes copies on the scheduler's side and maps them on a worker's."""

    def create(self, nbytes: int) -> SharedCopy:
        """Return a copy of *nbytes* to fill.

        Raises:
            StoreFault: there is no memory, or no descriptor, for it.
        """
        ...

    def map(self, pid: int, fd: int, nbytes: int) -> memoryview:
        """Map a sealed copy of another process (or this one) privately.

        Returns:
            Writable, private 1-D bytes that live for as long as something refers to them.

        Raises:
            StoreFault: it can't be reached, or its length is not *nbytes*.
        """
        ...
