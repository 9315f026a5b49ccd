"""A lease on bytes that were copied out of LMCache's pool."""

from __future__ import annotations

import numpy as np


class CopiedLease:
    """Implements `ports.storage.ReadLease`. The bytes are this lease's own already.

    Args:
        frame: the whole frame, 1-D writable bytes that nobody else has.
    """

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._given = False

    @property
    def nbytes(self) -> int:
        """Length of the frame in bytes."""
        return self._frame.nbytes

    def view(self) -> memoryview:
        """Return the frame; from the second time on, a copy of it as it is then."""
        if self._given:
            return np.array(self._frame).data
        self._given = True
        return self._frame

    def read_into(self, target: memoryview, offset: int = 0) -> int:
        """Copy bytes from *offset* into *target* and return how many."""
        nbytes = max(0, min(target.nbytes, self.nbytes - offset))
        if nbytes:
            source = np.frombuffer(self._frame[offset : offset + nbytes], dtype=np.uint8)
            np.copyto(np.frombuffer(target[:nbytes], dtype=np.uint8), source)
        return nbytes

    def close(self) -> None:
        """Do nothing: the bytes go with their last user."""
