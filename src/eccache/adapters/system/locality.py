"""Whether a file system answers by itself, or may wait for somebody else."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_LOCAL: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # Btrfs
        0xF2F52010,  # F2FS
        0xCA451A4E,  # bcachefs
        0x2FC12FC1,  # ZFS
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs, whose upper layer is one of these
    }
)
"""`f_type` of statfs(2), for file systems on this machine's own memory and disks."""
_STATFS_NBYTES: Final = 256
_TYPE_NBYTES: Final = ctypes.sizeof(ctypes.c_long)

_libc = ctypes.CDLL(None, use_errno=True)


def answers_by_itself(path: str) -> bool:
    """Return whether names under *path* are looked up without a server or a daemon that may be gone.

    True for the file systems that are known to; a network file system, one in user space, one that is not
    known, a path that is not there, and any system but Linux are False.
    """
    if sys.platform != "linux":
        return False
    found = ctypes.create_string_buffer(_STATFS_NBYTES)
    if _libc.statfs(os.fsencode(path), found):
        return False
    kind = int.from_bytes(found.raw[:_TYPE_NBYTES], sys.byteorder)
    return kind & 0xFFFFFFFF in _LOCAL
