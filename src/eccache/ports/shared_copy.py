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

    def write(self, data: memoryview, offset: int) -> None:
        """Copy *data*, 1-D bytes, to *offset*; what is never written is zero. Releases the GIL.

        Where *data* is the mapping of a file that becomes shorter meanwhile, this raises: nothing done
        to the file can end the process.

        Raises:
            StoreFault: the bytes can't be read or stored, or the copy is sealed.
        """
        ...

    def seal(self) -> None:
        """End writing for good, for every process. Mapped and verified after this, a copy stays so.

        Raises:
            StoreFault: it can't be sealed.
        """
        ...

    def close(self) -> None:
        """Give the memory back; a worker that has mapped it keeps its mapping. Idempotent, never raises."""
        ...


class SharedCopies(Protocol):
    """Makes copies on the scheduler's side and maps them on a worker's. Any thread may call it."""

    def create(self, nbytes: int) -> SharedCopy:
        """Return a copy of *nbytes*, 1 or more, to fill.

        Raises:
            StoreFault: there is no memory, or no descriptor, for it.
        """
        ...

    def map(self, pid: int, fd: int, nbytes: int) -> memoryview:
        """Map a sealed copy of another process, or of this one, privately. Releases the GIL.

        Returns:
            Writable, private 1-D bytes that live for as long as something refers to them, every page
            present.

        Raises:
            StoreFault: it can't be reached, is not sealed, or its length is not *nbytes*.
        """
        ...
