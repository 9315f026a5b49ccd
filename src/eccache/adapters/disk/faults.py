"""From what the operating system says to what a reader of the log can act on."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from eccache.domain.errors import StoreFault

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_REMEDIES: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ENOSPC: "free space (or inodes: df -i) on the file system, or lower max_local_disk_size",
        errno.EDQUOT: "raise the quota, or lower max_local_disk_size",
        errno.EFBIG: "raise the limit of a file's length (ulimit -f)",
        errno.EROFS: "mount the file system writable; hits are served all the same",
        errno.EACCES: "give this user read and write permission on the directory",
        errno.EPERM: "give this user read and write permission on the directory",
        errno.EMFILE: "raise the limit of open files (ulimit -n)",
        errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
        errno.ENOMEM: "give the process or its container more memory",
        errno.EIO: "look at the kernel's log: the medium may be failing",
    }
)


def store_fault(doing: str, error: OSError) -> StoreFault:
    """Return the fault that *error* amounts to.

    Args:
        doing: what failed, e.g. `"put"`.
        error: as the operating system reported it.
    """
    where = f": {error.filename}" if error.filename else ""
    cause = f"{doing} failed: {error.strerror or error}{where}"
    return StoreFault(cause, remedy=_REMEDIES.get(error.errno or 0, ""))
