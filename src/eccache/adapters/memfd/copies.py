"""Shared copies as memory files: no name, no file system, sealed by the kernel.

A copy is written with `pwrite`, never through a mapping: the kernel need not clear a page that it fills,
makes no page-table entry, and answers with an error where the source's pages are gone (a plain access
would raise SIGBUS). No writable mapping of a copy exists at any time, so it can be sealed at once.

A worker opens `/proc/<pid>/fd/<n>`, which needs the same user and the same pid namespace, and maps the
copy privately: what it writes into its mapping stays its own.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable
from typing import Final

from eccache.domain.errors import StoreFault

_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
NO_EXECUTION: Final = 8
"""MFD_NOEXEC_SEAL, Linux 6.3; hosts may demand it (sysctl vm.memfd_noexec)."""
_REMEDY: Final = "run scheduler and workers as one user, in one pid namespace, on one host."


class MemfdCopy:
    """Implements `ports.shared_copy.SharedCopy`. Made by `MemfdCopies.create`.

    Args:
        fd: of a memory file of *nbytes* that allows sealing; owned from now on.
        nbytes: its length.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        self._fd = fd
        self._nbytes = nbytes
        self._pid = os.getpid()
        self._open = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self._nbytes

    @property
    def pid(self) -> int:
        """The process that holds it."""
        return self._pid

    @property
    def fd(self) -> int:
        """Its descriptor in that process."""
        return self._fd

    def write(self, data: memoryview, offset: int) -> None:
        """Copy *data* to *offset*.

        Raises:
            StoreFault: the bytes can't be read or stored, or the copy is sealed.
        """
        written = 0
        try:
            while written < data.nbytes:
                written += os.pwrite(self._fd, data[written:], offset + written)
        except OSError as error:
            raise StoreFault(f"a promised copy could not be written: {error}") from error

    def seal(self) -> None:
        """End writing for good.

        Raises:
            StoreFault: it can't be sealed.
        """
        try:
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            raise StoreFault(f"a promised copy could not be sealed: {error}") from error

    def close(self) -> None:
        """Give the memory back. The lock is never released: a descriptor must not be closed twice."""
        if self._open.acquire(blocking=False):
            with contextlib.suppress(OSError):
                os.close(self._fd)


class MemfdCopies:
    """Implements `ports.shared_copy.SharedCopies` on Linux.

    Args:
        map_private: maps the first bytes of a descriptor's file privately and writable, every page
            present, without the descriptor; None where the system can't populate a mapping.
    """

    def __init__(self, map_private: Callable[[int, int], memoryview | None]) -> None:
        self._map_private = map_private

    def create(self, nbytes: int) -> MemfdCopy:
        """Return a copy of *nbytes* to fill.

        Raises:
            StoreFault: there is no memory, or no descriptor, for it.
        """
        try:
            fd = _memory_file()
            copy = MemfdCopy(fd, nbytes)
        except OSError as error:
            raise StoreFault(
                f"no memory file for a promised copy: {error}",
                remedy="raise the limit of open files (ulimit -n), or lower the bound of promised copies.",
            ) from error
        try:
            os.ftruncate(fd, nbytes)
        except OSError as error:
            copy.close()
            raise StoreFault(f"a promised copy can't have {nbytes} bytes: {error}") from error
        return copy

    def map(self, pid: int, fd: int, nbytes: int) -> memoryview:
        """Map a sealed copy of process *pid* privately.

        Raises:
            StoreFault: it can't be reached, is not sealed, or its length is not *nbytes*.
        """
        try:
            own = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreFault(
                f"the promised copy of process {pid} can't be reached: {error}", remedy=_REMEDY
            ) from error
        try:
            _require_sealed(own, nbytes)
            mapped = self._map_private(own, nbytes)
            return _read(own, nbytes) if mapped is None else mapped
        except OSError as error:
            raise StoreFault(f"a promised copy can't be mapped: {error}") from error
        finally:
            os.close(own)


def _memory_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("eccache-promise", flags | NO_EXECUTION)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("eccache-promise", flags)


def _require_sealed(fd: int, nbytes: int) -> None:
    """Require that the file's length and bytes can't change any more, so that touching it is safe."""
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise StoreFault("a promised copy is not sealed")
    if (found := os.fstat(fd).st_size) != nbytes:
        raise StoreFault(f"a promised copy of {found} bytes where {nbytes} were announced")


def _read(fd: int, nbytes: int) -> memoryview:
    """Return the bytes themselves, where the system is too old to populate a mapping."""
    whole = memoryview(bytearray(nbytes))
    done = 0
    while done < nbytes:
        done += os.preadv(fd, [whole[done:]], done)
    return whole
