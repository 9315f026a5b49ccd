"""A header with a digest that fits is still not trusted: what it says is checked before it is believed."""

from __future__ import annotations

import copy
import io
import json
import pickle
import tracemalloc
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from eccache.domain.entry_format import (
    DIGEST_OFFSET,
    EntryHeader,
    FrameError,
    FrameFault,
    open_verified,
)
from tests.unit.domain.frames import (
    REF,
    document_of,
    sealed,
    small_frame,
    with_document,
    with_header,
)

MAX_PEAK_NBYTES = 16 << 20
"""Far above what a header of 64 KiB can honestly need, far below what would hurt a server."""

GOOD = document_of(small_frame(created="1"))
GOOD_TEXT = json.dumps(GOOD, separators=(",", ":")).encode()
BIG = "9" * 5000


def changed(*path: str, to: object) -> bytes:
    """The good header with one value replaced, or removed where *to* is the class `object`."""
    document: Any = copy.deepcopy(GOOD)
    target = document
    for name in path[:-1]:
        target = target[name]
    if to is object:
        del target[path[-1]]
    else:
        target[path[-1]] = to
    return json.dumps(document, separators=(",", ":")).encode()


def inserted(text: str) -> bytes:
    """The good header with *text* as the last of its metadata."""
    return GOOD_TEXT.replace(b'"},"encoder', b'",' + text.encode() + b'},"encoder')


def replaced(old: str, new: str) -> bytes:
    """The good header with one piece of its text replaced."""
    assert GOOD_TEXT.count(old.encode()) == 1
    return GOOD_TEXT.replace(old.encode(), new.encode("utf-8", "surrogatepass"))


REQUIRED = ["format", "namespace", "key", "mm_digest", "mm_hash", "dtype", "shape"]
NO_TEXT: list[object] = [None, 1, 1.5, float("nan"), True, [], {}, 10**4000]

BAD: dict[str, bytes] = {
    **{f"without {name}": changed("__metadata__", name, to=object) for name in REQUIRED},
    **{
        f"{name} is {str(value)[:9]}": changed("__metadata__", name, to=value)
        for name in [*REQUIRED, "created"]
        for value in NO_TEXT
        if name != "format"
    },
    **{
        f"tensor's {name} is {str(value)[:9]}": changed("encoder_output", name, to=value)
        for name in ("dtype", "shape", "data_offsets")
        for value in [*NO_TEXT, object]
    },
    **{
        f"offsets {str(value)[:20]}": changed("encoder_output", "data_offsets", to=value)
        for value in ([0, 3], [1, 4], [0, 5], [4, 0], [0, 4, 0], [-1, 3], [0.5, 4], ["0", "4"], [0])
    },
    **{
        f"shape {value[:20]!r}": changed("__metadata__", "shape", to=value)
        for value in ("", "5", "-4", "4.0", "x", "1,1,1,1,1,1,1,1,4", "2,2", "4,1", BIG, f"0,{BIG}")
    },
    **{
        f"dtype {value[:20]!r}": changed("__metadata__", "dtype", to=value)
        for value in ("", "int8", "float16", "U8", "uint9", "__class__", "x" * 5000)
    },
    "no tensor": changed("encoder_output", to=object),
    "tensor of another name": GOOD_TEXT.replace(b'"encoder_output"', b'"encoder_outpus"'),
    "two tensors": changed("second", to=GOOD["encoder_output"]),
    "tensor is null": changed("encoder_output", to=None),
    "tensor is a list": changed("encoder_output", to=[]),
    "one more top-level name": changed("x", to=1),
    "one more name of the tensor": changed("encoder_output", "x", to=1),
    "deep list": inserted('"x":' + "[" * 30_000 + "]" * 30_000),
    "deep map": inserted('"x":' + '{"a":' * 10_000 + "1" + "}" * 10_000),
    "deep list unclosed": inserted('"x":' + "[" * 60_000),
    "deep list for a format": replaced('"format":"1"', '"format":' + "[" * 30_000 + "]" * 30_000),
    "deep list for offsets": replaced("[0,4]", "[" * 30_000 + "]" * 30_000),
    "many names": inserted(",".join(f'"{number}":{number}' for number in range(5000))),
    "many empty lists": inserted('"x":[' + ",".join(["[]"] * 20_000) + "]"),
    "number of many digits": inserted(f'"x":{BIG * 10}'),
    "number with an exponent": inserted('"x":1e999999999'),
    "NaN": inserted('"x":NaN'),
    "infinity": inserted('"x":-Infinity'),
    "a name twice": inserted('"format":"1"'),
    "the digest twice": inserted('"digest":"0"'),
    "metadata twice": GOOD_TEXT[:-1] + b',"__metadata__":{}}',
    "tensor twice": GOOD_TEXT[:-1] + b',"encoder_output":{}}',
    "offsets twice": replaced('"shape":[4]', '"shape":[4],"shape":[4]'),
    "a name twice, once escaped": inserted('"\\u0066ormat":"1"'),
    "lone surrogate escaped": replaced("an input", "\\ud800"),
    "lone surrogate in a name": inserted('"\\udfff":""'),
    "lone surrogate raw": replaced("an input", "\ud800"),
    "control character": replaced("an input", "an\ninput"),
    "NUL": replaced("an input", "an\0input"),
    "no UTF-8": GOOD_TEXT.replace(b"an input", b"an \xff\xfe"),
    "something follows": GOOD_TEXT + b"x",
    "a second document follows": GOOD_TEXT + GOOD_TEXT,
    "NULs follow": GOOD_TEXT + b"\0",
    "unclosed": GOOD_TEXT[:-1],
    "nothing but the start": GOOD_TEXT[: DIGEST_OFFSET + 32 - 8],
    "comment": GOOD_TEXT + b"// x",
    "single quotes": GOOD_TEXT.replace(b'"1"', b"'1'"),
}

NOT_IN_ORDER: dict[str, bytes] = {
    "empty": b"",
    "spaces": b" " * 5000,
    "null": b"null",
    "number": b"1",
    "list": b"[]",
    "text": b'"__metadata__"',
    "map": b"{}",
    "metadata is null": b'{"__metadata__":null}',
    "metadata is a list": b'{"__metadata__":[]}',
    "metadata is text": b'{"__metadata__":"format"}',
    "a space before": b" " + GOOD_TEXT,
    "byte order mark": b"\xef\xbb\xbf" + GOOD_TEXT,
    "UTF-16": GOOD_TEXT.decode().encode("utf-16"),
    "UTF-32": GOOD_TEXT.decode().encode("utf-32-le"),
    "tensor first": json.dumps(dict(reversed(GOOD.items()))).encode(),
    "digest last": json.dumps(
        GOOD | {"__metadata__": dict(reversed(GOOD["__metadata__"].items()))}
    ).encode(),
    "with spaces": json.dumps(GOOD).encode(),
    "digest misspelled": GOOD_TEXT.replace(b'"digest"', b'"digesT"'),
    "digest too long": GOOD_TEXT.replace(b'","format"', b'x","format"'),
    "pickle": pickle.dumps(GOOD),
}


class Bomb:
    """What a pickle would do if anything unpickled it."""

    def __reduce__(self) -> tuple[object, ...]:
        """Fail where it is unpickled."""
        return (pytest.fail, ("a header was unpickled",))


def opened(frame: bytes | bytearray) -> EntryHeader | FrameFault:
    """The header of *frame*, or why there is none. Anything else that is raised is a failure."""
    try:
        return open_verified(memoryview(frame), REF)
    except FrameError as error:
        fault, text = error.fault, str(error)
    assert text.isprintable()  # It goes to a log.
    assert len(text) < 300
    return fault


def test_the_header_that_the_others_differ_from_is_good() -> None:
    """The tests below test what they say, and nothing that their making broke."""
    assert isinstance(opened(with_header(GOOD_TEXT)), EntryHeader)
    assert with_header(GOOD_TEXT) == with_document(GOOD) == small_frame(created="1")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_header_with_a_good_digest_is_malformed(name: str) -> None:
    """A writer's fault, or a forger's, costs a miss: no exception, no memory, no belief."""
    frame = with_header(BAD[name])
    tracemalloc.start()
    try:
        outcome = opened(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome in (FrameFault.MALFORMED, FrameFault.LENGTH, FrameFault.VERSION)
    assert peak < MAX_PEAK_NBYTES


@pytest.mark.parametrize("name", NOT_IN_ORDER)
def test_a_header_whose_digest_does_not_come_first_is_malformed(name: str) -> None:
    """The digest has one place. Where something else stands there, the rest isn't even parsed."""
    assert opened(with_header(NOT_IN_ORDER[name])) is FrameFault.MALFORMED


def test_a_pickle_is_never_executed() -> None:
    """Not as header, not as payload."""
    bomb = pickle.dumps(Bomb())
    assert opened(with_header(bomb)) is FrameFault.MALFORMED
    payload = io.BytesIO(bomb).getvalue()
    assert isinstance(opened(small_frame(payload)), EntryHeader)


@pytest.mark.parametrize("version", ["0", "2", "10", "", "1.0", "01", "\ud800"])
def test_another_version_is_no_damage(version: str) -> None:
    """An older or newer eccache wrote it: not ours to open, and not ours to remove."""
    assert opened(with_header(changed("__metadata__", "format", to=version))) is FrameFault.VERSION


@pytest.mark.parametrize("version", [1, None, 1.0, [1], {}])
def test_a_version_that_is_no_text_is_another_version(version: object) -> None:
    """A later version may write its number as it likes."""
    assert opened(with_header(changed("__metadata__", "format", to=version))) is FrameFault.VERSION


def test_a_longer_payload_than_the_header_says_is_malformed() -> None:
    """Header and file agree on the length, to the byte."""
    assert opened(with_header(GOOD_TEXT, b"abcde")) is FrameFault.MALFORMED
    assert opened(with_header(GOOD_TEXT, b"abc")) is FrameFault.MALFORMED


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1", "uint8", "U8", "4", "0,4", "encoder_output"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
PATHS = st.sampled_from(
    [("__metadata__", name) for name in REQUIRED]
    + [("encoder_output", name) for name in ("dtype", "shape", "data_offsets", "x")]
    + [("__metadata__",), ("encoder_output",), ("x",), ("__metadata__", "x")]
)


@given(PATHS, JSON)
def test_no_value_anywhere_in_a_header_does_harm(path: tuple[str, ...], value: object) -> None:
    """Any JSON in any place gives the entry or a FrameError; the entry only with what it really is."""
    outcome = opened(with_header(changed(*path, to=value)))
    if isinstance(outcome, EntryHeader):
        assert (4,) == outcome.spec.shape
        assert "uint8" == outcome.spec.dtype


@given(st.data())
def test_no_change_of_bytes_under_a_fitting_digest_does_harm(data: st.DataObject) -> None:
    """The same for bytes: cut, overwritten or repeated, then given a digest that fits."""
    frame = small_frame(created="1")
    start = data.draw(st.integers(0, len(frame) - 1) | st.integers(0, 500))
    stop = start + data.draw(st.integers(0, 40))
    frame[start:stop] = data.draw(st.binary(max_size=40))
    outcome = opened(sealed(frame))
    if isinstance(outcome, EntryHeader):
        assert "uint8" == outcome.spec.dtype
        assert len(frame) == outcome.block_nbytes + outcome.spec.nbytes
