"""Leases on frames that lie in memory."""

from __future__ import annotations

import ctypes

_copy = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(
    ("memcpy", ctypes.CDLL(None))
)
"""`memcpy` without the GIL, which a copy between memoryviews would hold."""


class MemoryLease:
    """Implements `ports.storage.ReadLease` over bytes that nobody changes.

    Args:
        frame: the whole frame.
    """

    def __init__(self, frame: bytearray) -> None:
        self._frame = frame

    @property
    def nbytes(self) -> int:
        """Length of the frame in bytes."""
        return len(self._frame)

    def view(self) -> memoryview:
        """Return a private copy of the whole frame."""
        copied = bytearray(self.nbytes)
        self.read_into(memoryview(copied))
        return memoryview(copied)

    def read_into(self, target: memoryview, offset: int = 0) -> int:
        """Copy bytes from *offset* into *target* and return how many."""
        nbytes = max(0, min(target.nbytes, self.nbytes - offset))
        if nbytes:
            source = (ctypes.c_ubyte * nbytes).from_buffer(self._frame, offset)
            _copy((ctypes.c_ubyte * nbytes).from_buffer(target), source, nbytes)
        return nbytes

    def close(self) -> None:
        """Do nothing: a lease is a reference to bytes, and goes with its last user."""
