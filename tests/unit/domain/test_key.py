"""Keys name an entry alike for ever, wherever they are made."""

from __future__ import annotations

import hashlib

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from eccache.domain.dtypes import DTYPES, find_dtype
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import KeyFormatError
from eccache.domain.key import EntryKey, mm_digest, stable_u64
from eccache.domain.namespace import Namespace
from tests.unit.domain.text import ANY_TEXT, HARD_TEXT, NAMES

KEYS = st.builds(
    EntryKey,
    NAMES,
    st.integers(0, 2**64 - 1),
    st.sampled_from(sorted(DTYPES)),
)


@given(ANY_TEXT | HARD_TEXT)
def test_the_hash_is_the_start_of_sha256(text: str) -> None:
    """The definition, written a second time: first 8 bytes, big-endian, of SHA-256 over UTF-8."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    assert int(digest.hexdigest()[:16], 16) == stable_u64(text)
    assert digest.digest() == mm_digest(text)


@pytest.mark.parametrize("value", [None, 1, b"abc", ["abc"], 1.5])
def test_an_id_that_is_no_text_is_refused(value: object) -> None:
    """A caller's slip is a TypeError that names the type, never an entry under a wrong name."""
    with pytest.raises(TypeError, match=type(value).__name__):
        stable_u64(value)  # type: ignore[arg-type]


@given(KEYS)
def test_the_text_form_leads_back_to_the_key(key: EntryKey) -> None:
    """Whatever the model is called, `from_string` is the inverse of `to_string`."""
    assert key == EntryKey.from_string(key.to_string())


@given(KEYS, KEYS)
def test_different_keys_have_different_text_forms(first: EntryKey, second: EntryKey) -> None:
    """The text form loses nothing."""
    assert (first == second) == (first.to_string() == second.to_string())


@given(st.text(max_size=60) | st.text("@0123456789abcdefhal1", max_size=40))
def test_only_what_to_string_writes_is_read(text: str) -> None:
    """Any other text is refused, so that no two texts mean one key."""
    try:
        key = EntryKey.from_string(text)
    except KeyFormatError:
        return
    assert text == key.to_string()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m@1@0@ff",
        "m@1@0@0ff@half",
        "m@1@0@FF@half",
        "m@1@0@@half",
        "m@1@0@-1@half",
        "m@1@0@fffffffffffffffff@half",
        "m@2@0@ff@half",
        "m@1@1@ff@half",
        "m@01@0@ff@half",
        "m@1@0@ff@float16",
        "m@1@0@ff@torch.half",
        "m@1@0@ff@float17",
        "m@1@0@ff@half\n",
        "@1@0@ff@half",
    ],
)
def test_malformed_text_is_refused(text: str) -> None:
    """A key that another system or version wrote otherwise is not guessed at."""
    with pytest.raises(KeyFormatError):
        EntryKey.from_string(text)


def test_a_malformed_key_is_a_value_error_too() -> None:
    """A caller who knows nothing of eccache's errors can still catch it."""
    assert issubclass(KeyFormatError, ValueError)


def test_hash_zero_has_a_text_form() -> None:
    """The smallest hash is written as one digit and read again."""
    key = EntryKey("m", 0, "float16")
    assert "m@1@0@0@half" == key.to_string()
    assert key == EntryKey.from_string("m@1@0@0@half")


@pytest.mark.parametrize("chunk_hash", [-1, 2**64])
def test_a_hash_beyond_64_bits_is_refused(chunk_hash: int) -> None:
    """A key holds exactly what its text form can hold."""
    with pytest.raises(ValueError, match="chunk_hash"):
        EntryKey("m", chunk_hash, "float16")


def test_a_model_without_a_name_is_refused() -> None:
    """An empty model name would put all models' entries under one name."""
    with pytest.raises(KeyFormatError, match="model name"):
        EntryKey.for_mm_hash("", "id", "float16")
    with pytest.raises(TypeError, match="model_name"):
        EntryKey.for_mm_hash(None, "id", "float16")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_name_of_a_dtype_makes_one_key(name: str) -> None:
    """Torch's name, torch's dtype and LMCache's name are one dtype; the key holds the first."""
    dtype = DTYPES[name]
    names: list[object] = [name, f"torch.{name}", dtype.key_name, getattr(torch, name)]
    assert {EntryKey("m", 1, name)} == {EntryKey("m", 1, other) for other in names}


def test_torch_knows_the_dtypes_as_we_do() -> None:
    """Item sizes are torch's, and no two dtypes share a name or a tag."""
    for dtype in DTYPES.values():
        assert getattr(torch, dtype.name).itemsize == dtype.itemsize
    for attribute in ("name", "key_name", "safetensors_tag"):
        assert len(DTYPES) == len({getattr(dtype, attribute) for dtype in DTYPES.values()})


def test_an_unknown_dtype_is_refused_with_those_that_exist() -> None:
    """Whoever misspells a dtype sees the right spellings, and never a megabyte of their own text."""
    with pytest.raises(ValueError, match=r"unknown dtype 'int7'; known are .*bfloat16") as caught:
        find_dtype("int7")
    assert "int8" in str(caught.value)
    with pytest.raises(ValueError, match="unknown dtype") as caught:
        find_dtype("x" * 10_000)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kv_dtype", ["float8_e4m3fn", "bfloat16"])
@pytest.mark.parametrize("rank", range(8))
def test_rank_and_kv_dtype_have_no_part_in_a_name(rank: int, kv_dtype: str) -> None:
    """All tensor-parallel ranks, and servers with any KV cache, name one entry alike.

    The rank and the KV dtype of a server are not arguments; the sentinels stand in their places.
    """
    fields = {"rank": rank, "kv_dtype": kv_dtype}
    for name, value in fields.items():
        with pytest.raises(TypeError, match="unexpected keyword"):
            EntryKey.for_mm_hash("m", "id", "float16", **{name: value})
    assert (1, 0) == (EntryKey.WORLD_SIZE, EntryKey.WORKER_ID)
    assert EntryKey.for_mm_hash("m", "id", "float16").to_string().startswith("m@1@0@")


@given(ANY_TEXT | HARD_TEXT)
def test_a_reference_carries_the_whole_identity(mm_hash: str) -> None:
    """Beside the 64 bits that name the file stand all 256 that identify the input."""
    namespace = Namespace.from_ingredients({})
    ref = EntryRef.for_mm_hash(namespace, "m", mm_hash, "float16")
    assert mm_digest(mm_hash) == ref.mm_digest
    assert stable_u64(mm_hash) == ref.key.chunk_hash
    assert namespace.fingerprint == ref.namespace
    assert mm_hash[:256] == ref.excerpt


@given(ANY_TEXT | HARD_TEXT, st.text(min_size=1), ANY_TEXT | HARD_TEXT, st.text(min_size=1))
def test_variants_of_ids_share_nothing(
    mm_hash: str, variant: str, other: str, other_variant: str
) -> None:
    """Neither a plain id, whatever it looks like, nor another variant has a variant's digest."""
    digest = mm_digest(mm_hash, variant)
    assert digest != mm_digest(mm_hash)
    assert digest not in {
        mm_digest(forged)
        for forged in (
            other,
            variant + mm_hash,
            f"\xff{variant}\xff{mm_hash}",
            b"\xff".join((b"", variant.encode(), mm_hash.encode("utf-8", "surrogatepass"))).decode(
                "utf-8", "surrogateescape"
            ),
        )
    }
    same = (mm_hash, variant) == (other, other_variant)
    assert same is (digest == mm_digest(other, other_variant))


def test_a_variant_has_a_name_of_its_own() -> None:
    """Two tenants' entries of one picture lie side by side."""
    namespace = Namespace.from_ingredients({})
    plain = EntryRef.for_mm_hash(namespace, "m", "id", "float16")
    salted = EntryRef.for_mm_hash(namespace, "m", "id", "float16", variant="salt")
    assert plain.key != salted.key
    assert salted.mm_digest[:8] == salted.key.chunk_hash.to_bytes(8, "big")
    assert EntryRef.for_mm_hash(namespace, "m", "id", "float16", variant="") == plain


def test_a_reference_is_what_it_names_not_what_people_read() -> None:
    """The excerpt is for people: it takes no part in equality."""
    ref = EntryRef.for_mm_hash(Namespace.from_ingredients({}), "m", "id", "float16")
    same = EntryRef(ref.namespace, ref.key, ref.mm_digest)
    assert ref == same
    assert hash(ref) == hash(same)


@pytest.mark.parametrize("namespace", ["", "../../../../x/y", "0123456789abcdeg", "0" * 17])
def test_a_namespace_that_could_lead_elsewhere_is_refused(namespace: str) -> None:
    """A namespace is a directory's name: 16 hex digits and nothing else."""
    key = EntryKey("m", 1, "float16")
    with pytest.raises(ValueError, match="namespace"):
        EntryRef(namespace, key, bytes(32))


@pytest.mark.parametrize("nbytes", [0, 8, 31, 33])
def test_a_digest_of_the_wrong_length_is_refused(nbytes: int) -> None:
    """An identity is never a part of one."""
    with pytest.raises(ValueError, match="32 bytes"):
        EntryRef("0" * 16, EntryKey("m", 1, "float16"), bytes(nbytes))
