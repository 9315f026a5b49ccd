"""Leases on files: an open descriptor until closed, mappings that need none."""

from __future__ import annotations

import contextlib

from eccache.adapters.disk.faults import store_fault
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.transfer import read_fully
from eccache.domain.errors import StoreFault
from eccache.ports.file_operations import FileOperations


class FileLease:
    """Implements `ports.storage.ReadLease` on an open file, which no rename or unlink changes.

    Args:
        files: file operations.
        descriptor: the file, closed by `close`.
        nbytes: its length when it was opened.
        notices: says once what the system lacks.
    """

    def __init__(
        self, files: FileOperations, descriptor: int, nbytes: int, notices: Notices
    ) -> None:
        self._files = files
        self._descriptor: int | None = descriptor
        self._nbytes = nbytes
        self._notices = notices

    @property
    def nbytes(self) -> int:
        """Length of the file in bytes when it was opened."""
        return self._nbytes

    @property
    def descriptor(self) -> int:
        """The open file.

        Raises:
            StoreFault: the lease is closed.
        """
        if self._descriptor is None:
            raise StoreFault("the lease is closed")
        return self._descriptor

    def view(self) -> memoryview:
        """Return the whole file as a private mapping, or as a copy where that can't be had safely.

        Whoever changes the file in place afterwards may change what was not yet written to here, and
        whoever truncates it may end the process: a published file is changed by nobody.

        Raises:
            StoreFault: the bytes can't be had.
        """
        descriptor = self.descriptor
        if self._nbytes == 0:
            return memoryview(bytearray())
        try:
            mapped = self._files.map_private(descriptor, self._nbytes)
        except OSError as error:
            raise store_fault("map", error) from error
        if mapped is None:
            self._notices.once("store.mapping.unsupported", effect="reads are copied")
            mapped = memoryview(bytearray(self._nbytes))
            if self.read_into(mapped) < self._nbytes:
                raise StoreFault("the entry became shorter while it was read")
        return mapped

    def read_into(self, target: memoryview, offset: int = 0) -> int:
        """Copy bytes from *offset* into *target* and return how many.

        Raises:
            StoreFault: the bytes can't be had.
        """
        descriptor = self.descriptor
        wanted = max(0, min(target.nbytes, self._nbytes - offset))
        try:
            return read_fully(self._files, descriptor, target[:wanted], offset)
        except OSError as error:
            raise store_fault("read", error) from error

    def close(self) -> None:
        """Close the file. Mappings stay."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                self._files.close(descriptor)

    def __del__(self) -> None:
        self.close()
