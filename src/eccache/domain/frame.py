"""Frames on their way into a store.

A frame yields its pieces in the order in which they should reach the medium: the payload first, and
the header block last. A store writes each piece at its offset and knows nothing of digests. A small
payload is hashed piece by piece while it is still in the processor's cache; a large one as a whole, beside
the thread that writes it, where there is another that can.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias

import xxhash

from eccache.domain.entry_format import (
    FrameError,
    bounded_block_nbytes,
    header_block,
    open_verified,
    parse_header,
    seal,
)
from eccache.domain.entry_ref import EntryRef
from eccache.domain.tensor_spec import TensorSpec

PIECE_NBYTES: Final = 2 << 20
MIN_NBYTES_BESIDE: Final = 8 << 20
"""What is hashed beside the writing: 0.8 ms of it, some times what a thread costs."""

Beside: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Begins a function; what it returns waits until that has ended."""


def at_once(work: Callable[[], None]) -> Callable[[], None]:
    """Do *work* now, on this thread: a `Beside` for whoever has no other."""
    work()
    return lambda: None


class Frame(Protocol):
    """The bytes of one entry, whole and in format 1."""

    @property
    def nbytes(self) -> int:
        """Length of the whole frame in bytes."""
        ...

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape of the payload."""
        ...

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield `(offset, bytes)` for every byte of the frame once, the header block last.

        May be called again, e.g. for a second store.
        """
        ...


class FreshFrame:
    """The frame of a tensor that is being stored; its digest is computed as the pieces go by.

    Args:
        ref: name and identity.
        spec: element type and shape.
        payload: the tensor's bytes, row-major, 1-D bytes of length `spec.nbytes`; or a function that yields
            them in order, each piece valid until the next. They must not change until they have been
            consumed.
        fields: optional header fields.
        beside: does work while this thread goes on. It has to have ended before the payload goes away, also
            where somebody stopped in the middle of `pieces`: whoever lends it sees to that.

    Raises:
        ValueError: the payload's length is not the spec's, or the header would be too long.
    """

    def __init__(
        self,
        ref: EntryRef,
        spec: TensorSpec,
        payload: memoryview | Callable[[], Iterable[memoryview]],
        fields: Mapping[str, str],
        beside: Beside = at_once,
    ) -> None:
        self.spec = spec
        self._beside = beside
        self._block = header_block(ref, spec, fields)
        if isinstance(payload, memoryview):
            self._require(payload.nbytes)
            whole = (payload,)
            self._parts: Callable[[], Iterable[memoryview]] = lambda: whole
        else:
            self._parts = payload

    @property
    def nbytes(self) -> int:
        """Length of the whole frame in bytes."""
        return len(self._block) + self.spec.nbytes

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the payload in pieces of at most 2 MiB, then the header block with the digest of them all.

        Raises:
            ValueError: a function that should have yielded the payload yielded fewer or more bytes.
        """
        block = bytearray(self._block)
        digest = xxhash.xxh3_128(block)
        offset = len(block)
        for part in self._parts():
            as_a_whole = part.nbytes >= MIN_NBYTES_BESIDE
            if as_a_whole:
                hashed = self._beside(functools.partial(digest.update, part))
            for start in range(0, part.nbytes, PIECE_NBYTES):
                piece = part[start : start + PIECE_NBYTES]
                if not as_a_whole:
                    digest.update(piece)
                yield offset, piece
                offset += piece.nbytes
            if as_a_whole:
                hashed()
        self._require(offset - len(block))
        seal(block, digest.hexdigest())
        yield 0, memoryview(block)

    def _require(self, payload_nbytes: int) -> None:
        if payload_nbytes != self.spec.nbytes:
            msg = f"a payload of {payload_nbytes} bytes for a tensor of {self.spec.nbytes}"
            raise ValueError(msg)


class SealedFrame:
    """A frame that already exists as bytes, e.g. fetched from another store.

    Args:
        buffer: the whole frame, verified by whoever made this.

    Raises:
        FrameError: it is no frame.
    """

    def __init__(self, buffer: memoryview) -> None:
        block_nbytes = bounded_block_nbytes(buffer[:8], buffer.nbytes)
        self.spec = parse_header(buffer[:block_nbytes], buffer.nbytes).spec
        self._block_nbytes = block_nbytes
        self._buffer = buffer

    @property
    def nbytes(self) -> int:
        """Length of the whole frame in bytes."""
        return self._buffer.nbytes

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the payload in pieces, then the header block as it stands."""
        for start in range(self._block_nbytes, self._buffer.nbytes, PIECE_NBYTES):
            yield start, self._buffer[start : start + PIECE_NBYTES]
        yield 0, self._buffer[: self._block_nbytes]


def is_kept(stored: memoryview, ref: EntryRef, frame: Frame) -> bool:
    """Return whether what is *stored* under *ref*'s name stays when *frame* is put there.

    It does if all of it verifies, and it is of *ref*'s input and of *frame*'s dtype and shape. What is
    damaged, another input's (their 64-bit hashes are equal), or of another shape gives way.
    """
    try:
        return open_verified(stored, ref).spec == frame.spec
    except FrameError:
        return False
