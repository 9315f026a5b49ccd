"""File-operation port: everything that the native store asks of a file system, and no more.

This is the seam at which a simulated disk replays crashes and a faulty one fails operation by operation.
Every operation is one step that can fail. The faults are the operating system's own: `OSError` with
an errno. Descriptors are integers, as in `os`. Nothing here holds the GIL while it waits for a
medium, and any thread may call it.

No operation but `exists` follows a symbolic link in the last component of a path.
"""

from __future__ import annotations

import os
from typing import Protocol

import attrs


@attrs.frozen
class Space:
    """Room on a file system, or in the quota that applies to a directory of it.

    Attributes:
        free_nbytes: what this user may still write.
        total_nbytes: what it holds in all.
    """

    free_nbytes: int
    total_nbytes: int


class DirectoryOperations(Protocol):
    """What is done to names. Paths are absolute."""

    def exists(self, path: str) -> bool:
        """Return whether there is something at *path*, or where it links to.

        Never raises; what can't be told is False.
        """
        ...

    def status(self, path: str) -> os.stat_result:
        """Return what is known of *path* itself."""
        ...

    def scan(self, directory: str) -> list[tuple[str, os.stat_result]]:
        """Return name and status of everything in *directory*; what vanishes meanwhile is left out."""
        ...

    def make_directory(self, path: str, mode: int) -> None:
        """Make one directory, with permission bits *mode* less the process's umask."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give *source* the name *target* in one step, in place of whatever file has it."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name that is not a directory's."""
        ...


class DescriptorOperations(Protocol):
    """What is done to open files."""

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open what exists; does not wait for a FIFO's other end."""
        ...

    def create(self, path: str, mode: int) -> int:
        """Make a new file, open for reading and writing, with *mode* less the process's umask."""
        ...

    def close(self, descriptor: int) -> None:
        """Give *descriptor* back."""
        ...

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Fill *target* from *offset*; returns the number of bytes read, 0 at the end."""
        ...

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write *data* at *offset*; returns the number of bytes written, which may be fewer."""
        ...

    def allocate(self, descriptor: int, nbytes: int) -> bool:
        """Reserve the file's first *nbytes* and give it that length; False where that can't be done."""
        ...

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes and length are on the medium."""
        ...


class AttributeOperations(Protocol):
    """What is asked of, and set on, files and file systems."""

    def descriptor_status(self, descriptor: int) -> os.stat_result:
        """Return what is known of an open file."""
        ...

    def set_mode(self, target: int | str, mode: int) -> None:
        """Set the permission bits of a descriptor's file or of a directory, whatever the umask is."""
        ...

    def set_modified(self, descriptor: int, unix_ns: int | None) -> None:
        """Set the time of modification; None is the file system's now, which any writer may set."""
        ...

    def lock(self, descriptor: int) -> bool:
        """Lock an open file until it is closed, by whatever end; False if another open file has it."""
        ...

    def map_private(
        self, descriptor: int, nbytes: int, *, only_cached: bool = False
    ) -> memoryview | None:
        """Map the first *nbytes* privately, every page present, and return them writable.

        The mapping needs *descriptor* no more, and lives for as long as something refers to it.

        Args:
            descriptor: the file.
            nbytes: how much of it, 1 or more.
            only_cached: never wait for the medium. To be asked for this user's own files.

        Returns:
            1-D bytes; None where the system can't tell beforehand whether every page can be had, so
            that touching one could end the process, and where not all of it is cached but has to be.
        """
        ...

    def space(self, path: str) -> Space:
        """Return the room where *path* is."""
        ...

    def sync_directory(self, path: str) -> None:
        """Wait until the names in *path* are on the medium."""
        ...


class FileOperations(DirectoryOperations, DescriptorOperations, AttributeOperations, Protocol):
    """All of it, and on whose behalf."""

    def user(self) -> int:
        """Return the effective user id."""
        ...

    def boot(self) -> str:
        """Return what names the time since this machine was started; never raises.

        The same text in all its processes, another one after the next start. Empty where the system has
        none.
        """
        ...
