"""`docs/format.md` is right: its reader reads, its example is an entry, its tables are complete."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import torch

from eccache.domain.dtypes import DTYPES
from eccache.domain.entry_format import header_block, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.file_name import file_name, shard_name
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec
from tests.golden.entries import NAMESPACE, OTHER_VERSIONS, SPECS, mm_hash_of, path_of, payload_of

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.split("## An example")[1]


def page_reader() -> Any:  # noqa: ANN401 - a function that the page defines
    """The page's reader, as the page has it."""
    names: dict[str, Any] = {}
    source = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec("\n".join(source), names)  # noqa: S102 - the code under test stands in a page
    return names["read_entry"]


def example_bytes() -> bytes:
    """The example's file, from its dump."""
    result = bytearray()
    last = b""
    for line in re.findall(r"^(?:[0-9a-f]{8}.*|\*)$", EXAMPLE, re.MULTILINE):
        if line == "*":
            continue
        offset, _, rest = line.partition("  ")
        while len(result) < int(offset, 16):
            result += last
        last = bytes.fromhex(rest.split("  |")[0])
        result += last
    return bytes(result)


@pytest.mark.parametrize("name", SPECS)
def test_the_pages_reader_reads_every_golden_entry(name: str) -> None:
    """An outsider who has nothing but the page can read our files."""
    expected = (SPECS[name].dtype, list(SPECS[name].shape), payload_of(name))
    found = page_reader()(path_of(name).read_bytes(), NAMESPACE.fingerprint, mm_hash_of(name))
    assert expected == found


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_the_pages_reader_leaves_other_versions_alone(version: str) -> None:
    """As it says in step 4."""
    data = path_of("any", version).read_bytes()
    assert page_reader()(data, NAMESPACE.fingerprint, mm_hash_of("any")) is None


def test_the_pages_reader_verifies() -> None:
    """A flipped bit, a cut, another input and another namespace are misses."""
    read, data = page_reader(), path_of("bfloat16").read_bytes()
    for position in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[position] ^= 1
        assert read(bytes(flipped), NAMESPACE.fingerprint, mm_hash_of("bfloat16")) is None
    for length in (0, 7, 4095, 4096, len(data) - 1):
        assert read(data[:length], NAMESPACE.fingerprint, mm_hash_of("bfloat16")) is None
    assert read(data, NAMESPACE.fingerprint, "another") is None
    assert read(data, "0" * 16, mm_hash_of("bfloat16")) is None


def test_the_example_is_an_entry_and_what_we_write() -> None:
    """To the byte, with every name that the text gives."""
    namespace = Namespace.from_ingredients({"model": "Qwen/Qwen2-VL-2B", "revision": "abc"})
    ref = EntryRef.for_mm_hash(namespace, "Qwen/Qwen2-VL-2B", "a picture of a cat", "bfloat16")
    data = example_bytes()
    header = open_verified(memoryview(data), ref)
    values = [[1, 2, 3], [-1, 0.5, 0]]
    payload = torch.tensor(values, dtype=torch.bfloat16).view(torch.int16).flatten().tolist()
    assert struct.pack("<6h", *cast("list[int]", payload)) == data[header.block_nbytes :]

    spec = TensorSpec("bfloat16", (2, 3))
    frame = FreshFrame(ref, spec, memoryview(data[4096:]), {"created": "1764500000"})
    written = bytearray(frame.nbytes)
    for offset, piece in frame.pieces():
        written[offset : offset + piece.nbytes] = piece
    assert data == written

    assert f"so is `{namespace.fingerprint}`" in EXAMPLE
    assert f"`{ref.key.to_string()}`" in EXAMPLE
    assert f"`v1/{ref.namespace}/{shard_name(ref.key)}/{file_name(ref.key)}`" in EXAMPLE


def test_the_table_of_element_types_is_complete() -> None:
    """Every dtype with its three names and its size."""
    expected = [
        f"| `{dtype.name}` | `{dtype.key_name}` | `{dtype.safetensors_tag}` | {dtype.itemsize} |"
        for dtype in DTYPES.values()
    ]
    section = PAGE.split("### Element types")[1].split("## Reading")[0]
    assert expected == [line for line in section.splitlines() if line.startswith("| `")][1:]


def test_the_table_of_fields_is_complete_and_in_order() -> None:
    """The order is part of the format: one tensor gives one sequence of bytes."""
    section = PAGE.split("### Metadata")[1].split("### Element types")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    header = re.findall(rb'"(\w+)":"', path_of("bfloat16").read_bytes()[:4096].split(b"},")[0])
    # A golden entry has no `content`; the one that has it is written here.
    ref = attrs.evolve(EntryRef.for_mm_hash(NAMESPACE, "m", "id", "int8"), content="0" * 64)
    block = bytes(header_block(ref, TensorSpec("int8", (1,)), {"created": "0"}))
    written = re.findall(rb'"(\w+)":"', block.split(b"},")[0])
    assert documented == [name.decode() for name in written]
    assert written[:-1] == header
