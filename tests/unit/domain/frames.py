"""Frames made by hand: with any header, and a digest that fits it."""

from __future__ import annotations

import json
from typing import Any

import xxhash

from eccache.domain.entry_format import DIGEST_OFFSET
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame, FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec

NAMESPACE = Namespace.from_ingredients({"revision": "test"})
REF = EntryRef.for_mm_hash(NAMESPACE, "test/model", "an input", "bfloat16")
ZEROS = b"0" * 32


def whole(frame: Frame) -> bytearray:
    """All bytes of *frame*, in their order."""
    result = bytearray(frame.nbytes)
    for offset, piece in frame.pieces():
        result[offset : offset + piece.nbytes] = piece
    return result


def small_frame(payload: bytes = b"\x01\x02\x03\x04", **fields: str) -> bytearray:
    """A frame of REF that holds *payload* as uint8."""
    spec = TensorSpec("uint8", (len(payload),))
    return whole(FreshFrame(REF, spec, memoryview(payload), fields))


def document_of(frame: bytes | bytearray) -> dict[str, Any]:
    """The JSON document of a frame, parsed."""
    length = int.from_bytes(frame[:8], "little")
    document: dict[str, Any] = json.loads(frame[8 : 8 + length])
    return document


def sealed(frame: bytes | bytearray) -> bytearray:
    """The frame with the digest that fits the rest of it."""
    result = bytearray(frame)
    end = DIGEST_OFFSET + 32
    if len(result) >= end:
        result[DIGEST_OFFSET:end] = ZEROS
        result[DIGEST_OFFSET:end] = xxhash.xxh3_128(result).hexdigest().encode()
    return result


def with_header(text: bytes, payload: bytes = b"\x01\x02\x03\x04") -> bytearray:
    """A frame with *text* as its header, padded, and a digest that fits."""
    block_nbytes = -(-(8 + len(text)) // 4096) * 4096
    length = block_nbytes - 8
    return sealed(length.to_bytes(8, "little") + text.ljust(length) + payload)


def with_document(document: object, payload: bytes = b"\x01\x02\x03\x04") -> bytearray:
    """A frame with *document* as its header, and a digest that fits."""
    return with_header(json.dumps(document, separators=(",", ":")).encode(), payload)
