"""Frames to put into a store under test."""

from __future__ import annotations

import random
from collections.abc import Iterator

from eccache.domain.entry_format import open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame, FreshFrame
from eccache.domain.key import EntryKey
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec

MODEL = "test/model"
NAMESPACE = Namespace.from_ingredients({"revision": "test"})


def ref_of(
    mm_hash: str, *, namespace: Namespace = NAMESPACE, model: str = MODEL, variant: str = ""
) -> EntryRef:
    """Return the reference of input *mm_hash*."""
    return EntryRef.for_mm_hash(namespace, model, mm_hash, "bfloat16", variant=variant)


def colliding_ref(ref: EntryRef) -> EntryRef:
    """Return a reference to another input that has the same name as *ref*'s."""
    key = EntryKey(ref.key.model_name, ref.key.chunk_hash, ref.key.dtype)
    return EntryRef(ref.namespace, key, bytes(32), "another input")


def frame_of(ref: EntryRef, seed: int = 0, *, rows: int = 4, width: int = 64) -> FreshFrame:
    """Return a frame of *ref* with a payload of `[rows, width]` bfloat16 that follows from *seed*."""
    spec = TensorSpec("bfloat16", (rows, width))
    payload = random.Random(seed).randbytes(spec.nbytes)  # noqa: S311 - test data
    return FreshFrame(ref, spec, memoryview(payload), {})


def frame_bytes(frame: Frame) -> bytes:
    """Return all bytes of *frame* in their order."""
    whole = bytearray(frame.nbytes)
    for offset, piece in frame.pieces():
        whole[offset : offset + piece.nbytes] = piece
    return bytes(whole)


def is_intact(frame: memoryview, ref: EntryRef) -> bool:
    """Return True; raise `FrameError` if *frame* is not, bit for bit, an entry of *ref*'s."""
    open_verified(frame, ref)
    return True


class _FrameGoneWrong:
    """What a frame says of itself, whatever comes instead of its pieces."""

    def __init__(self, frame: FreshFrame) -> None:
        self._frame = frame
        self.spec = frame.spec

    @property
    def nbytes(self) -> int:
        """Length of the whole frame in bytes."""
        return self._frame.nbytes


class DamagedFrame(_FrameGoneWrong):
    """A frame with one bit of its last payload byte flipped on the way.

    Args:
        frame: a frame with a payload.
    """

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the frame's pieces, the one with the last byte changed."""
        for offset, piece in self._frame.pieces():
            if offset + piece.nbytes == self.nbytes:
                changed = bytearray(piece)
                changed[-1] ^= 1
                yield offset, memoryview(changed)
            else:
                yield offset, piece


class BrokenFrameError(Exception):
    """What a `BrokenFrame` raises."""


class BrokenFrame(_FrameGoneWrong):
    """A frame whose source fails after the payload, before the header.

    Args:
        frame: the frame that it would have been.
    """

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the payload and raise."""
        for offset, piece in self._frame.pieces():
            if offset == 0:
                raise BrokenFrameError
            yield offset, piece
