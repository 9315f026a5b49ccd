"""Private file mappings without Python's `mmap`.

Python's `mmap` keeps a descriptor for each mapping, so that a thousand held tensors exhaust the usual
limit, and its `madvise` holds the GIL while a cold file is read. Here the system calls are made through
ctypes, which releases the GIL.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
from typing import ClassVar, Final

_LONGEST: Final = 1 << 46
_FAILED: Final = ctypes.c_void_p(-1).value
_AHEAD_NBYTES: Final = 1 << 20
_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ, Linux 5.14: brings every page in, and reports an error where a plain access would
raise SIGBUS."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int),
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


class _Mapped(ctypes.Array[ctypes.c_ubyte]):
    """Owner of one mapping: unmaps it when the last view of it is gone.

    One type serves every length, since ctypes would make one for each. Its own length is out of reach
    of any mapping; views are cut to the mapping's.
    """

    _type_: ClassVar = ctypes.c_ubyte
    _length_: ClassVar = _LONGEST

    mapped_nbytes: int

    def __del__(self) -> None:
        _libc.munmap(ctypes.addressof(self), self.mapped_nbytes)


def map_private(descriptor: int, nbytes: int, *, only_cached: bool = False) -> memoryview | None:
    """Map the first *nbytes* (1 or more) of a file privately and writable, every page present.

    Args:
        descriptor: the file.
        nbytes: how much of it.
        only_cached: don't wait for the medium. Holds for files of this process's user: of others'
            the kernel says that all of it is there.

    Returns:
        1-D bytes, or None where the system can't populate a mapping, or not all of it is cached but
        has to be.

    Raises:
        OSError: it can't be mapped, or a page can't be had, e.g. EFAULT where the file is shorter.
    """
    if sys.platform != "linux":
        return None
    if nbytes >= _AHEAD_NBYTES and not only_cached:
        # All of it at once, however short the device's own read-ahead is. Free where it is cached.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, nbytes, os.POSIX_FADV_WILLNEED)
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, nbytes, protection, mmap.MAP_PRIVATE, descriptor, 0)
    if address == _FAILED:
        raise _error()
    if only_cached and not _is_resident(address, nbytes):
        _libc.munmap(address, nbytes)
        return None
    while _libc.madvise(address, nbytes, _POPULATE_READ):
        error = _error()
        if error.errno == errno.EINTR:
            continue
        _libc.munmap(address, nbytes)
        if error.errno == errno.EINVAL:
            return None
        raise error
    owner = _Mapped.from_address(address)
    owner.mapped_nbytes = nbytes
    return memoryview(owner).cast("B")[:nbytes]


def _is_resident(address: int, nbytes: int) -> bool:
    pages = ctypes.create_string_buffer(-(-nbytes // mmap.PAGESIZE))
    return not _libc.mincore(address, nbytes, pages) and pages.raw.count(1) == len(pages)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
