"""A frame whose payload comes piece by piece is the frame of the whole payload."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from eccache.domain.frame import MIN_NBYTES_BESIDE, PIECE_NBYTES, FreshFrame
from eccache.domain.tensor_spec import TensorSpec
from tests.unit.domain.frames import REF, whole

NBYTES = 3 * PIECE_NBYTES + 5
PAYLOAD = random.Random(0).randbytes(NBYTES)
SPEC = TensorSpec("uint8", (NBYTES,))


def in_parts(payload: bytes, *sizes: int) -> Callable[[], Iterator[memoryview]]:
    """Yields *payload* in parts of *sizes*, each overwritten when the next one is asked for."""

    def parts() -> Iterator[memoryview]:
        begin = 0
        for size in (*sizes, len(payload)):
            part = bytearray(payload[begin : begin + size])
            yield memoryview(part)
            part[:] = bytes(len(part))
            begin += size

    return parts


@pytest.mark.parametrize("sizes", [(), (1,), (0, PIECE_NBYTES + 1, 7), (NBYTES - 1, 1)], ids=str)
def test_parts_make_the_frame_of_the_whole(sizes: tuple[int, ...]) -> None:
    """Wherever the payload is cut, offsets and digest are the same, also the second time."""
    expected = whole(FreshFrame(REF, SPEC, memoryview(PAYLOAD), {}))
    frame = FreshFrame(REF, SPEC, in_parts(PAYLOAD, *sizes), {})
    assert [expected] * 2 == [whole(frame), whole(frame)]
    assert {True} == {piece.nbytes <= PIECE_NBYTES for _, piece in frame.pieces()}


LARGE = random.Random(1).randbytes(MIN_NBYTES_BESIDE + 3)


@pytest.mark.parametrize(
    "sizes", [(), (MIN_NBYTES_BESIDE,), (3, MIN_NBYTES_BESIDE), (5, 6)], ids=str
)
def test_a_large_part_is_hashed_beside_its_writing(sizes: tuple[int, ...]) -> None:
    """As late as can be, and still before the next part takes its place: the same frame."""
    spec = TensorSpec("uint8", (len(LARGE),))
    expected = whole(FreshFrame(REF, spec, memoryview(LARGE), {}))
    begun: list[int] = []

    def at_last(work: Callable[[], None]) -> Callable[[], None]:
        begun.append(1)
        return work

    frame = FreshFrame(REF, spec, in_parts(LARGE, *sizes), {}, at_last)
    pieces = [(offset, bytes(piece)) for offset, piece in frame.pieces()]
    assert expected == b"".join(piece for _, piece in sorted(pieces))
    assert len(begun) == sum(
        size >= MIN_NBYTES_BESIDE for size in (*sizes, len(LARGE) - sum(sizes))
    )
    assert max(len(piece) for _, piece in pieces) <= PIECE_NBYTES


@pytest.mark.parametrize(
    "payload", [PAYLOAD[:-1], PAYLOAD + b"x", b""], ids=["short", "long", "none"]
)
def test_parts_of_another_length_never_make_a_frame(payload: bytes) -> None:
    """The header, without which a file is no entry, is not yielded."""
    frame = FreshFrame(REF, SPEC, in_parts(payload), {})
    offsets: list[int] = []
    with pytest.raises(ValueError, match=f"for a tensor of {NBYTES}"):
        offsets.extend(offset for offset, _ in frame.pieces())
    assert 0 not in offsets
