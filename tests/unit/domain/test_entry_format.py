"""An entry says what it is, and is only taken for what it is."""

from __future__ import annotations

import random

import attrs
import hypothesis.strategies as st
import pytest
import xxhash
from hypothesis import given

from eccache.domain.dtypes import DTYPES
from eccache.domain.entry_format import (
    ALIGNMENT,
    DIGEST_OFFSET,
    EntryHeader,
    FrameError,
    FrameFault,
    FrameHasher,
    bounded_block_nbytes,
    header_block,
    open_verified,
    parse_header,
)
from eccache.domain.entry_ref import EntryRef
from eccache.domain.file_name import SUFFIX, file_name
from eccache.domain.frame import PIECE_NBYTES, FreshFrame, SealedFrame, is_kept
from eccache.domain.key import EntryKey
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec
from tests.unit.domain.frames import NAMESPACE, REF, document_of, small_frame, whole
from tests.unit.domain.text import ANY_TEXT, HARD_TEXT, NAMES

SPECS = st.builds(
    TensorSpec, st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 4), max_size=5)
)
FIELDS = st.dictionaries(
    st.text(max_size=10).filter(
        lambda name: (
            name
            not in (
                "digest",
                "format",
                "namespace",
                "key",
                "mm_digest",
                "mm_hash",
                "dtype",
                "shape",
                "content",
            )
        )
    ),
    st.text(max_size=20),
    max_size=3,
)


@given(NAMES, ANY_TEXT | HARD_TEXT, SPECS, FIELDS, st.randoms())
def test_what_was_stored_is_what_is_found(
    model: str, mm_hash: str, spec: TensorSpec, fields: dict[str, str], rng: random.Random
) -> None:
    """Any input of any model, any dtype and shape, comes back bit for bit, with its identity."""
    ref = EntryRef.for_mm_hash(NAMESPACE, model, mm_hash, spec.dtype)
    payload = rng.randbytes(spec.nbytes)
    frame = whole(FreshFrame(ref, spec, memoryview(payload), fields))
    header = open_verified(memoryview(frame), ref)
    expected = EntryHeader(
        namespace=NAMESPACE.fingerprint,
        key_name=file_name(ref.key).removesuffix(SUFFIX),
        mm_digest=ref.mm_digest.hex(),
        excerpt=mm_hash[:256].encode("utf-8", "replace").decode(),
        spec=spec,
        fields=fields,
        block_nbytes=header.block_nbytes,
    )
    assert expected == header
    assert payload == frame[header.block_nbytes :]


def test_the_payload_starts_on_a_page() -> None:
    """So that it can be mapped, read directly, and moved to an accelerator as it lies."""
    for fields in ({}, {"x": "y" * 4096}, {"x": "y" * 50_000}):
        block = header_block(REF, TensorSpec("uint8", (1,)), fields)
        assert 0 == len(block) % ALIGNMENT
        assert len(block) == 8 + int.from_bytes(block[:8], "little")


def test_the_digest_stands_at_a_fixed_place() -> None:
    """XXH3-128 over the whole file with the digest's own characters as zeros, in lower-case hex."""
    frame = small_frame()
    assert 35 == DIGEST_OFFSET
    found = bytes(frame[35:67])
    frame[35:67] = b"0" * 32
    assert found == xxhash.xxh3_128(bytes(frame)).hexdigest().encode()
    assert b'{"__metadata__":{"digest":"' == frame[8:35]


def test_a_digest_in_capitals_is_damage() -> None:
    """The digest is compared as bytes: of its own 32 characters, too, no bit may flip."""
    frame = small_frame()
    capitals = bytes(frame[35:67]).upper()
    assert capitals != frame[35:67]
    frame[35:67] = capitals
    assert fault_of(frame) is FrameFault.DIGEST


def test_optional_fields_are_kept_and_unknown_ones_do_no_harm() -> None:
    """A later version's fields are covered by the digest and ignored."""
    header = open_verified(memoryview(small_frame(created="1764500000", modality="video")), REF)
    assert {"created": "1764500000", "modality": "video"} == dict(header.fields)


@pytest.mark.parametrize("name", ["digest", "format", "namespace", "key", "mm_digest", "shape"])
def test_an_optional_field_never_stands_for_a_required_one(name: str) -> None:
    """What identifies an entry is written by the format alone."""
    with pytest.raises(ValueError, match="written by the format itself"):
        header_block(REF, TensorSpec("uint8", (1,)), {name: "x"})


@pytest.mark.parametrize("fields", [{"a": 1}, {1: "a"}, {"a": None}])
def test_an_optional_field_that_is_no_text_is_refused(fields: dict[str, str]) -> None:
    """A header that no reader would take is never written."""
    with pytest.raises(TypeError):
        header_block(REF, TensorSpec("uint8", (1,)), fields)


def test_an_optional_field_with_a_lone_surrogate_is_refused() -> None:
    """Nor one that holds half a character."""
    with pytest.raises(ValueError, match="surrogates"):
        header_block(REF, TensorSpec("uint8", (1,)), {"a": "\ud800"})


def test_a_header_is_bounded() -> None:
    """What a reader would refuse as too long is never written."""
    limit = 16 * ALIGNMENT - 8
    used = len(bytes(header_block(REF, TensorSpec("uint8", (1,)), {"a": ""})[8:]).rstrip())
    assert len(header_block(REF, TensorSpec("uint8", (1,)), {"a": "x" * (limit - used)})) == 65536
    with pytest.raises(ValueError, match="is above"):
        header_block(REF, TensorSpec("uint8", (1,)), {"a": "x" * (limit - used + 1)})


def test_the_longest_id_leaves_room_in_the_header() -> None:
    """256 characters that JSON writes with 12 bytes each, under the longest model name."""
    ref = EntryRef.for_mm_hash(NAMESPACE, "😀" * 1000, "😀" * 1000, "bfloat16")
    assert len(header_block(ref, TensorSpec("uint8", (1,)), {})) <= 2 * ALIGNMENT


def fault_of(frame: bytes | bytearray, ref: EntryRef | None = REF) -> FrameFault | None:
    """Why *frame* is not *ref*'s entry; None if it is."""
    try:
        open_verified(memoryview(frame), ref)
    except FrameError as error:
        return error.fault
    return None


OTHERS = {
    "another input": EntryRef.for_mm_hash(NAMESPACE, "test/model", "another", "bfloat16"),
    "another model": EntryRef.for_mm_hash(NAMESPACE, "test/other", "an input", "bfloat16"),
    "another dtype": EntryRef.for_mm_hash(NAMESPACE, "test/model", "an input", "float16"),
    "another namespace": EntryRef.for_mm_hash(
        Namespace.from_ingredients({"revision": "other"}), "test/model", "an input", "bfloat16"
    ),
    "a collision of 64 bits": EntryRef(REF.namespace, REF.key, bytes(32)),
    "the key alone forged": EntryRef(REF.namespace, EntryKey("m", 1, "int8"), REF.mm_digest),
    "a variant of the id": EntryRef.for_mm_hash(
        NAMESPACE, "test/model", "an input", "bfloat16", variant="salt"
    ),
    "a content that was not recorded": attrs.evolve(REF, content="ab" * 32),
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_entry_is_never_taken_for_another(other: str) -> None:
    """One renamed, copied from elsewhere, or under a colliding hash, is a miss and no damage."""
    frame = small_frame()
    assert fault_of(frame, REF) is None
    assert fault_of(frame, OTHERS[other]) is FrameFault.IDENTITY


BOUND = attrs.evolve(REF, content="ab" * 32)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (BOUND, None),
        (REF, None),
        (attrs.evolve(REF, content="cd" * 32), FrameFault.IDENTITY),
        (attrs.evolve(REF, content="ab" * 33), FrameFault.IDENTITY),
    ],
    ids=["the same content", "an id alone", "another content", "a longer digest"],
)
def test_an_entry_is_bound_to_its_content(asked: EntryRef, expected: FrameFault | None) -> None:
    """One id used for two contents: only who asks by the id alone takes the entry as it is."""
    spec = TensorSpec("uint8", (4,))
    frame = whole(FreshFrame(BOUND, spec, memoryview(b"1234"), {}))
    assert expected is fault_of(frame, asked)
    kept = is_kept(memoryview(frame), asked, FreshFrame(asked, spec, memoryview(b"1234"), {}))
    assert (expected is None) is kept


@pytest.mark.parametrize("content", ["", "ab", "AB" * 32, "ab" * 65, "ab" * 32 + "\n"])
def test_a_content_is_a_digest(content: str) -> None:
    """What goes into a header and is compared is bounded, and can't be mistaken for something else."""
    with pytest.raises(ValueError, match="content"):
        attrs.evolve(REF, content=content)


def test_a_field_can_not_pretend_a_content() -> None:
    """The reference alone says what an entry is bound to."""
    with pytest.raises(ValueError, match="content"):
        header_block(REF, TensorSpec("uint8", (4,)), {"content": "ab" * 32})


def test_without_a_reference_only_integrity_counts() -> None:
    """Whoever checks a store knows no inputs, and still finds damage."""
    frame = small_frame()
    assert fault_of(frame, None) is None
    frame[-1] ^= 1
    assert fault_of(frame, None) is FrameFault.DIGEST


def test_only_other_versions_and_inputs_are_no_damage() -> None:
    """Damage is put out of sight; what is merely not ours is left alone."""
    assert {FrameFault.VERSION, FrameFault.IDENTITY} == {f for f in FrameFault if not f.is_damage}


def test_a_digest_that_was_checked_elsewhere_is_not_computed_again() -> None:
    """A copy that was hashed on the way is opened by parsing its header."""
    frame = small_frame()
    frame[-1] ^= 1
    assert open_verified(memoryview(frame), REF, verified=True).spec == TensorSpec("uint8", (4,))


@given(st.lists(st.integers(1, 9000), max_size=6), st.integers(0, 20_000))
def test_a_digest_does_not_depend_on_the_pieces(cuts: list[int], payload_nbytes: int) -> None:
    """Hashing while copying gives what hashing at once gives, wherever the pieces end."""
    frame = small_frame(bytes(payload_nbytes))
    hasher = FrameHasher()
    start, stop = 0, ALIGNMENT
    for cut in [*cuts, len(frame)]:
        hasher.update(memoryview(frame)[start:stop])
        start, stop = stop, stop + cut
    hasher.update(memoryview(frame)[start:])
    assert hasher.matches()
    assert bytes(frame[35:67]).decode() == hasher.digest()


def test_a_hasher_that_has_seen_nothing_matches_nothing() -> None:
    """An empty copy is not a verified one."""
    assert not FrameHasher().matches()


@pytest.mark.parametrize("nbytes", [0, 1, 5, PIECE_NBYTES, PIECE_NBYTES + 1, 2 * PIECE_NBYTES])
def test_pieces_come_payload_first_and_header_last(nbytes: int) -> None:
    """A frame that is cut short on its way is no frame; and it can be read more than once."""
    frame = FreshFrame(REF, TensorSpec("uint8", (nbytes,)), memoryview(bytes(nbytes)), {})
    for source in (frame, SealedFrame(memoryview(whole(frame)))):
        for _ in range(2):
            pieces = [(offset, piece.nbytes) for offset, piece in source.pieces()]
            assert (0, 4096) == pieces[-1]
            starts = [offset for offset, _ in pieces[:-1]]
            assert list(range(4096, 4096 + nbytes, PIECE_NBYTES)) == starts
            assert nbytes == sum(size for _, size in pieces[:-1])
        assert source.nbytes == 4096 + nbytes
        assert source.spec == TensorSpec("uint8", (nbytes,))
    assert whole(frame) == whole(SealedFrame(memoryview(whole(frame))))


def test_a_payload_of_the_wrong_length_is_refused() -> None:
    """A frame is what its spec says, or is not made."""
    with pytest.raises(ValueError, match="3 bytes for a tensor of 4"):
        FreshFrame(REF, TensorSpec("uint8", (4,)), memoryview(bytes(3)), {})


def test_a_frame_that_is_none_is_not_passed_on() -> None:
    """Bytes from elsewhere are a frame or an error."""
    with pytest.raises(FrameError):
        SealedFrame(memoryview(bytes(5000)))


@pytest.mark.parametrize(
    ("stored", "shape", "kept"),
    [
        (small_frame(b"abcd"), (4,), True),
        (small_frame(b"abcd"), (3,), False),
        (small_frame(b"abcd"), (2, 2), False),
        (small_frame(b"abcd")[:-1], (4,), False),
        (b"", (4,), False),
    ],
)
def test_what_is_stored_stays_if_it_is_good_and_of_the_same_shape(
    stored: bytearray,
    shape: tuple[int, ...],
    kept: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """A put replaces what is damaged, another's, or of another shape; and nothing else."""
    spec = TensorSpec("uint8", shape)
    frame = FreshFrame(REF, spec, memoryview(bytes(spec.nbytes)), {})
    assert kept == is_kept(memoryview(stored), REF, frame)
    assert not is_kept(memoryview(stored), OTHERS["a collision of 64 bits"], frame)


def test_the_header_of_a_damaged_file_can_be_shown_to_people() -> None:
    """Listing a store reads headers alone, and needs no payload to verify."""
    frame = small_frame(model="m")
    header = parse_header(memoryview(frame)[:4096], len(frame))
    assert "an input" == header.excerpt
    assert attrs.asdict(header.spec) == {"dtype": "uint8", "shape": (4,)}


@pytest.mark.parametrize(("start", "nbytes"), [(b"", 9000), (bytes(7), 9000), (bytes(8), 4095)])
def test_a_start_that_is_too_short_is_truncated(start: bytes, nbytes: int) -> None:
    """A file of a few bytes has no header to read."""
    with pytest.raises(FrameError) as caught:
        bounded_block_nbytes(start, nbytes)
    assert caught.value.fault is FrameFault.TRUNCATED


def test_the_same_entry_is_the_same_bytes() -> None:
    """Two processes that store one output write one file; which one wins makes no difference."""
    assert small_frame(b"abcd", x="y") == small_frame(b"abcd", x="y")


def test_the_header_is_json_as_written() -> None:
    """What a person sees who opens the file in an editor."""
    document = document_of(small_frame(created="1"))
    assert list(document) == ["__metadata__", "encoder_output"]
    assert {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} == document["encoder_output"]
    metadata = document["__metadata__"]
    assert metadata.pop("digest")
    assert {
        "format": "1",
        "namespace": NAMESPACE.fingerprint,
        "key": "test%2Fmodel@1@0@" + f"{REF.key.chunk_hash:x}@bfloat16",
        "mm_digest": REF.mm_digest.hex(),
        "mm_hash": "an input",
        "dtype": "uint8",
        "shape": "4",
        "created": "1",
    } == metadata
    assert b" " * 3000 + b"\x01\x02\x03\x04" == small_frame(created="1")[-3004:]
