"""Whatever happens to the bytes of an entry is noticed."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from eccache.domain.entry_format import FrameError, FrameFault, open_verified
from tests.unit.domain.frames import REF, small_frame

FRAME = bytes(small_frame(b"payload!"))


def is_entry(frame: bytes | bytearray) -> bool:
    """Whether *frame* opens as REF's entry; any other outcome than a FrameError is a failure."""
    fault = None
    try:
        open_verified(memoryview(frame), REF)
    except FrameError as error:
        fault = error.fault
    assert fault is None or fault.is_damage
    return fault is None


def test_every_single_flipped_bit_is_noticed() -> None:
    """Of all bits of a frame, header and padding included, none can flip unseen."""
    assert is_entry(FRAME)
    frame = bytearray(FRAME)
    unseen = []
    for position in range(8 * len(frame)):
        frame[position // 8] ^= 1 << position % 8
        if is_entry(frame):
            unseen.append(position)
        frame[position // 8] ^= 1 << position % 8
    assert [] == unseen
    assert FRAME == frame


def test_every_truncation_is_noticed() -> None:
    """A frame cut anywhere is no entry."""
    assert [] == [length for length in range(len(FRAME)) if is_entry(FRAME[:length])]


@pytest.mark.parametrize("tail", [b"\0", b" ", FRAME, bytes(4096)])
def test_every_addition_is_noticed(tail: bytes) -> None:
    """Nor may anything follow it."""
    assert not is_entry(FRAME + tail)


@given(st.data())
def test_a_hole_is_noticed(data: st.DataObject) -> None:
    """Blocks that were never written, or were swapped, are noticed."""
    frame = bytearray(small_frame(bytes(range(1, 256)) * 100))
    start = data.draw(st.integers(0, len(frame) - 1))
    nbytes = data.draw(st.integers(1, len(frame) - start))
    before = bytes(frame)
    frame[start : start + nbytes] = bytes(nbytes)
    assume(before != frame)
    assert not is_entry(frame)


@given(st.binary(max_size=9000))
def test_random_bytes_are_no_entry(data: bytes) -> None:
    """Nothing but an entry opens as one, and nothing else than a FrameError is raised."""
    assert not is_entry(data)


@pytest.mark.parametrize(
    "length", [0, 1, 4087, 4089, 8192 - 8, 65536 - 8, 65536, 2**32, 2**63, 2**64 - 1]
)
def test_a_length_that_cannot_be_right_is_refused_before_anything_is_read(length: int) -> None:
    """A header's length is bounded and leads to a page; nothing is allocated for it."""
    frame = length.to_bytes(8, "little") + FRAME[8:]
    with pytest.raises(FrameError) as caught:
        open_verified(memoryview(frame), REF, verified=True)
    assert caught.value.fault in (FrameFault.LENGTH, FrameFault.TRUNCATED)
