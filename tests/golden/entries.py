"""The golden entries: which there are, what they hold, and how they were written.

`python -m tests.golden.entries` writes those that are missing and never touches one that is there: a
file of a released format must be readable for ever, and its bytes never change.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import xxhash

from eccache.domain.entry_ref import EntryRef
from eccache.domain.file_name import file_name
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec

FOLDER = Path(__file__).parent
NAMESPACE = Namespace.from_ingredients({"revision": "golden"})
MODEL = "Golden/Model-1B"
FIELDS = {"created": "1764500000"}

SPECS = {
    "bfloat16": TensorSpec("bfloat16", (3, 5)),
    "float16": TensorSpec("float16", (2, 2, 2)),
    "float32-scalar": TensorSpec("float32", ()),
    "float8_e4m3fn": TensorSpec("float8_e4m3fn", (7,)),
    "float4_e2m1fn_x2": TensorSpec("float4_e2m1fn_x2", (2, 3)),
    "uint8-empty": TensorSpec("uint8", (0, 4)),
    "int64": TensorSpec("int64", (1, 1)),
}
OTHER_VERSIONS = ("0", "2")
"""One before the first and one after the last: an old and a future eccache's."""


def mm_hash_of(name: str) -> str:
    """The input's id."""
    return f"golden input {name} \u00e9\U0001f600\ud800"


def ref_of(name: str) -> EntryRef:
    """What the entry *name* must be."""
    dtype = SPECS[name].dtype if name in SPECS else "bfloat16"
    return EntryRef.for_mm_hash(NAMESPACE, MODEL, mm_hash_of(name), dtype)


def payload_of(name: str) -> bytes:
    """The tensor's bytes."""
    return random.Random(name).randbytes(SPECS[name].nbytes)


def path_of(name: str, version: str = "1") -> Path:
    """Where the entry *name* is."""
    file = file_name(ref_of(name).key) if version == "1" else f"{name}.safetensors"
    return FOLDER / f"v{version}" / file


def written_now(name: str) -> bytes:
    """What this version of the code writes for the entry *name*."""
    frame = FreshFrame(ref_of(name), SPECS[name], memoryview(payload_of(name)), FIELDS)
    whole = bytearray(frame.nbytes)
    for offset, piece in frame.pieces():
        whole[offset : offset + piece.nbytes] = piece
    return bytes(whole)


def of_another_version(version: str) -> bytes:
    """An entry as format 1 lays it out, which says that it is of *version*, with a fitting digest."""
    text = json.dumps(
        {
            "__metadata__": {"digest": "0" * 32, "format": version, "new": "field"},
            "encoder_output": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
        },
        separators=(",", ":"),
    ).encode()
    frame = bytearray((4088).to_bytes(8, "little") + text.ljust(4088) + b"abcd")
    frame[35:67] = xxhash.xxh3_128(frame).hexdigest().encode()
    return bytes(frame)


def main() -> None:
    """Write the golden files that are missing."""
    wanted = {path_of(name): written_now(name) for name in SPECS}
    wanted |= {path_of("any", version): of_another_version(version) for version in OTHER_VERSIONS}
    for path, data in wanted.items():
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


if __name__ == "__main__":
    main()
