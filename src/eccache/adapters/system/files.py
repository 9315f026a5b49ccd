"""The operating system's files."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from typing import Final

from eccache.adapters.system.mapping import map_private
from eccache.ports.file_operations import Space

_OPEN: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_RDWR | os.O_CREAT | os.O_EXCL
_SCAN: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_RDONLY | os.O_DIRECTORY
_CANT_ALLOCATE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_CANT_LOCK: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})
_CANT_SYNC_DIRECTORY: Final = frozenset({errno.EINVAL, errno.EBADF})
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"

_libc = ctypes.CDLL(None, use_errno=True)
if sys.platform == "linux":
    _libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


class SystemFiles:
    """Implements `ports.file_operations.FileOperations`. Stateless."""

    def exists(self, path: str) -> bool:
        """Return whether there is something at *path*, or where it links to.

        Plain `access`: it makes no exception, and not to follow links takes a system call that some
        containers forbid.
        """
        return os.access(path, os.F_OK)

    def status(self, path: str) -> os.stat_result:
        """Return what is known of *path* itself."""
        return os.lstat(path)

    def scan(self, directory: str) -> list[tuple[str, os.stat_result]]:
        """Return name and status of everything in *directory*, looked up relative to it."""
        found = []
        descriptor = os.open(directory, _SCAN)
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    try:
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue
        finally:
            os.close(descriptor)
        return found

    def make_directory(self, path: str, mode: int) -> None:
        """Make one directory."""
        os.mkdir(path, mode)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        """Give *source* the name *target* in one step."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name that is not a directory's."""
        os.unlink(path)

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open what exists, following no link and waiting for no FIFO."""
        return os.open(path, _OPEN | (os.O_RDWR if writable else os.O_RDONLY))

    def create(self, path: str, mode: int) -> int:
        """Make a new file."""
        return os.open(path, _CREATE, mode)

    def close(self, descriptor: int) -> None:
        """Give *descriptor* back."""
        os.close(descriptor)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Fill *target* from *offset*: one `preadv`."""
        return os.preadv(descriptor, [target], offset)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write *data* at *offset*: one `pwrite`."""
        return os.pwrite(descriptor, data, offset)

    def allocate(self, descriptor: int, nbytes: int) -> bool:
        """Reserve the file's first *nbytes*.

        The system call itself, since where a file system lacks it `posix_fallocate` writes to every
        block instead, which is slower than not allocating.
        """
        if sys.platform != "linux":
            return False
        while _libc.fallocate(descriptor, 0, 0, nbytes):
            number = ctypes.get_errno()
            if number in _CANT_ALLOCATE:
                return False
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number))
        return True

    def sync(self, descriptor: int) -> None:
        """Wait until the file's bytes and length are on the medium."""
        if sys.platform == "darwin":
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(descriptor)

    def descriptor_status(self, descriptor: int) -> os.stat_result:
        """Return what is known of an open file."""
        return os.fstat(descriptor)

    def set_mode(self, target: int | str, mode: int) -> None:
        """Set the permission bits of a descriptor's file or of a directory."""
        os.chmod(target, mode)

    def set_modified(self, descriptor: int, unix_ns: int | None) -> None:
        """Set the time of modification, and of access with it."""
        if unix_ns is None:
            os.utime(descriptor)
        else:
            os.utime(descriptor, ns=(unix_ns, unix_ns))

    def lock(self, descriptor: int) -> bool:
        """Lock an open file with `flock`, which the kernel takes back when its last holder is gone."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _CANT_LOCK:
                return False
            raise
        return True

    def map_private(
        self, descriptor: int, nbytes: int, *, only_cached: bool = False
    ) -> memoryview | None:
        """Map the first *nbytes* privately, every page present."""
        return map_private(descriptor, nbytes, only_cached=only_cached)

    def space(self, path: str) -> Space:
        """Return the room where *path* is; a project quota counts where the file system tells of it."""
        volume = os.statvfs(path)
        return Space(volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize)

    def sync_directory(self, path: str) -> None:
        """Wait until the names in *path* are on the medium."""
        descriptor = os.open(path, _SCAN)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _CANT_SYNC_DIRECTORY:
                raise
        finally:
            os.close(descriptor)

    def user(self) -> int:
        """Return the effective user id."""
        return os.geteuid()

    def boot(self) -> str:
        """Return Linux's boot id."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""
