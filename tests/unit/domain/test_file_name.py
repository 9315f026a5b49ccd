"""Every key has a file name of its own, below the root, that a file system takes."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from eccache.domain.dtypes import DTYPES
from eccache.domain.file_name import MAX_NAME_NBYTES, SUFFIX, escape, file_name, shard_name
from eccache.domain.key import EntryKey
from tests.unit.domain.text import HARD_TEXT, NAMES

KEYS = st.builds(
    EntryKey,
    # Long names too, and such as differ only far inside.
    NAMES | st.tuples(NAMES, st.integers(1, 400), NAMES).map(lambda t: t[0] * t[1] + t[2]),
    st.integers(0, 2**64 - 1),
    st.sampled_from(sorted(DTYPES)),
)


@given(KEYS)
def test_a_name_is_one_level_and_at_most_255_bytes(key: EntryKey) -> None:
    """No model name, however made, leads out of a directory or past what a file system takes."""
    name = file_name(key)
    assert len(os.fsencode(name)) <= MAX_NAME_NBYTES
    assert name == Path(name).name
    assert Path("/root/v1") / name == Path(os.path.normpath(f"/root/v1/{name}"))
    assert not name.startswith(".")
    assert name.isascii()
    assert name.isprintable()
    assert name.endswith(SUFFIX)


@given(KEYS, KEYS)
def test_different_keys_have_different_names(first: EntryKey, second: EntryKey) -> None:
    """No two keys share a file."""
    assert (first == second) == (file_name(first) == file_name(second))


NEAR = [
    ("a/b-c", "a-b/c"),
    ("a/b", "a%2Fb"),
    ("a", "a@1@0@1@half"),
    (".a", "%2Ea"),
    ("a~", "a%7E"),
    ("\ud83d\ude00", "😀"),
    ("\u00e9", "e\u0301"),
    ("x" * 300 + "a", "x" * 300 + "b"),
    ("x" * 299 + "a" + "x" * 300, "x" * 299 + "b" + "x" * 300),
    ("A", "a"),
    ("\ud800", "\ud801"),
]


@pytest.mark.parametrize(("first", "second"), NEAR)
def test_near_model_names_have_different_names(first: str, second: str) -> None:
    """What other caches fold into one file stays two."""
    assert file_name(EntryKey(first, 1, "int8")) != file_name(EntryKey(second, 1, "int8"))


@given(st.sampled_from(["x" * 300, "é" * 100]), st.integers(0, 2**64 - 1), HARD_TEXT)
def test_a_shortened_name_equals_no_other(model: str, chunk_hash: int, other: str) -> None:
    """Not even that of a model whose name was made to look like the shortened one."""
    name = file_name(EntryKey(model, chunk_hash, "half"))
    assert "~" in name
    imitation = name.split("@1@0@")[0] + other
    assert name != file_name(EntryKey(imitation, chunk_hash, "half"))


@given(KEYS)
def test_a_short_name_is_the_escaped_text_form(key: EntryKey) -> None:
    """What `docs/format.md` says of a name, written a second time."""
    whole = escape(key.to_string()) + SUFFIX
    assert (whole == file_name(key)) == (len(whole) <= MAX_NAME_NBYTES)


def test_a_name_can_be_read() -> None:
    """A person sees the model, the hash and the dtype."""
    key = EntryKey("Qwen/Qwen2-VL", 0xABC, "bfloat16")
    assert "Qwen%2FQwen2-VL@1@0@abc@bfloat16.safetensors" == file_name(key)


def test_a_long_name_keeps_its_readable_start_and_end() -> None:
    """The middle becomes a digest; which model, hash and dtype it is can still be seen."""
    name = file_name(EntryKey("org/" + "m" * 400, 0xABC, "bfloat16"))
    assert name.startswith("org%2Fmmmm")
    assert name.endswith("@1@0@abc@bfloat16.safetensors")
    assert len(name) == MAX_NAME_NBYTES


@pytest.mark.parametrize("nbytes", [254, 255, 256, 257])
def test_the_bound_holds_to_the_byte(nbytes: int) -> None:
    """A name that just fits is kept whole; one byte more, and it is shortened."""
    rest = len(file_name(EntryKey("m", 1, "int8"))) - 1
    name = file_name(EntryKey("m" * (nbytes - rest), 1, "int8"))
    assert min(nbytes, 255) == len(name)
    assert (nbytes > 255) == ("~" in name)


@given(KEYS)
@example(EntryKey("m", 0, "int8"))
def test_a_shard_is_one_of_4096(key: EntryKey) -> None:
    """A million entries are some 244 files a directory; the shard follows from the hash alone."""
    shard = shard_name(key)
    assert len(shard) == 3
    assert int(shard, 16) == key.chunk_hash >> 52
