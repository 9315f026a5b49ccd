"""Entry format 1: a safetensors file whose every bit is covered by a digest.

```
offset 0      8 bytes    header length N, unsigned little-endian; 8 + N is a multiple of 4096
offset 8      N bytes    JSON, padded with spaces: {"__metadata__": {...}, "encoder_output": {...}}
offset 8+N    payload    the tensor's bytes, row-major, little-endian
```

The digest is XXH3-128 (seed 0) over the whole file with the digest's own 32 characters as `0`, written
as 32 lower-case hex characters at `DIGEST_OFFSET`. It guards against faults, not against attackers.
`docs/format.md` specifies all of this to the byte.

A reader bounds the lengths, verifies, and only then parses: nothing that a fault has touched reaches
the JSON parser.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs
import xxhash

from eccache.domain.dtypes import DTYPES
from eccache.domain.entry_ref import EntryRef
from eccache.domain.file_name import SUFFIX, file_name
from eccache.domain.namespace import FORMAT_VERSION
from eccache.domain.tensor_spec import TensorSpec

ALIGNMENT: Final = 4096
MAX_BLOCK_NBYTES: Final = 16 * ALIGNMENT
"""The header block (length field and JSON) is at most this long."""
TENSOR_NAME: Final = "encoder_output"
CONTENT_FIELD: Final = "content"
"""Optional field: digest of what the encoder read, as the host framework's adapter takes it."""

_LENGTH_NBYTES: Final = 8
_PREFIX: Final = b'{"__metadata__":{"digest":"'
DIGEST_OFFSET: Final = _LENGTH_NBYTES + len(_PREFIX)
DIGEST_NBYTES: Final = 32
_ZEROS: Final = b"0" * DIGEST_NBYTES
_DIGEST_END: Final = DIGEST_OFFSET + DIGEST_NBYTES
_QUOTE: Final = ord('"')
_SPACES: Final = b" " * MAX_BLOCK_NBYTES
MIN_FRAME_NBYTES: Final = ALIGNMENT

Buffer = bytes | bytearray | memoryview


class FrameFault(enum.Enum):
    """Why a frame is not the entry that was asked for. Each costs a miss."""

    TRUNCATED = "truncated"
    LENGTH = "length"
    DIGEST = "digest"
    MALFORMED = "malformed"
    VERSION = "version"
    IDENTITY = "identity"

    @property
    def is_damage(self) -> bool:
        """True where the bytes are bad; False where they are good but another version's or input's."""
        return self not in (FrameFault.VERSION, FrameFault.IDENTITY)


class FrameError(Exception):
    """A frame that can't be used; never leaves the library."""

    def __init__(self, fault: FrameFault, detail: str = "") -> None:
        self.fault = fault
        super().__init__(f"{fault.value}: {detail}" if detail else fault.value)


@attrs.frozen
class EntryHeader:
    """What an entry says of itself.

    Attributes:
        namespace: fingerprint, 16 hex digits.
        key_name: `file_name` of its key without the suffix.
        mm_digest: SHA-256 of its `mm_hash`, hex.
        excerpt: first 256 characters of its `mm_hash`, lone surrogates replaced; for people only.
        spec: element type and shape.
        fields: optional fields by name; readers ignore those they do not know.
        block_nbytes: length of the header block, the offset of the payload.
    """

    namespace: str
    key_name: str
    mm_digest: str
    excerpt: str
    spec: TensorSpec
    fields: Mapping[str, str]
    block_nbytes: int


_REQUIRED = frozenset(
    {"digest", "format", "namespace", "key", "mm_digest", "mm_hash", "dtype", "shape"}
)


def _tensor_entry(spec: TensorSpec) -> dict[str, Any]:
    """Return the safetensors header entry of *spec*; F4 counts numbers where torch counts pairs."""
    dtype = DTYPES[spec.dtype]
    shape = list(spec.shape) or ([1] if dtype.values_per_element > 1 else [])
    if dtype.values_per_element > 1:
        shape[-1] *= dtype.values_per_element
    return {"dtype": dtype.safetensors_tag, "shape": shape, "data_offsets": [0, spec.nbytes]}


def header_block(ref: EntryRef, spec: TensorSpec, fields: Mapping[str, str]) -> bytearray:
    """Return the header block of an entry with zeros where the digest goes.

    Args:
        ref: name and identity.
        spec: element type and shape of the payload.
        fields: optional fields, e.g. `{"created": "1764500000"}`; names of those that the format itself
            writes are refused.

    Raises:
        TypeError: a field is no str.
        ValueError: a field has a required field's name or a lone surrogate, or all fields together are
            too long.
    """
    _require_text(fields)
    if clash := (_REQUIRED | {CONTENT_FIELD}) & fields.keys():
        msg = f"{sorted(clash)} are written by the format itself"
        raise ValueError(msg)
    metadata = {
        "digest": _ZEROS.decode("ascii"),
        "format": str(FORMAT_VERSION),
        "namespace": ref.namespace,
        "key": file_name(ref.key).removesuffix(SUFFIX),
        "mm_digest": ref.mm_digest.hex(),
        "mm_hash": ref.excerpt.encode("utf-8", "replace").decode("utf-8"),
        "dtype": spec.dtype,
        "shape": ",".join(map(str, spec.shape)),
        **fields,
        **({} if ref.content is None else {CONTENT_FIELD: ref.content}),
    }
    text = json.dumps(
        {"__metadata__": metadata, TENSOR_NAME: _tensor_entry(spec)}, separators=(",", ":")
    ).encode("ascii")
    block_nbytes = -(-(_LENGTH_NBYTES + len(text)) // ALIGNMENT) * ALIGNMENT
    if block_nbytes > MAX_BLOCK_NBYTES:
        msg = f"a header of {len(text)} bytes is above {MAX_BLOCK_NBYTES - _LENGTH_NBYTES}"
        raise ValueError(msg)
    length_nbytes = block_nbytes - _LENGTH_NBYTES
    return bytearray(length_nbytes.to_bytes(_LENGTH_NBYTES, "little") + text.ljust(length_nbytes))


def seal(block: bytearray, digest: str) -> None:
    """Write *digest* into its place in the header block."""
    block[DIGEST_OFFSET:_DIGEST_END] = digest.encode("ascii")


class FrameHasher:
    """Computes a frame's digest from consecutive pieces, the first of which holds the header block."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self._found: bytes | None = None

    def update(self, piece: Buffer) -> None:
        """Take in the next piece. The first must have at least `ALIGNMENT` bytes. Releases the GIL."""
        if self._found is None:
            view = memoryview(piece)
            self._found = bytes(view[DIGEST_OFFSET:_DIGEST_END])
            self._hash.update(view[:DIGEST_OFFSET])
            self._hash.update(_ZEROS)
            self._hash.update(view[_DIGEST_END:])
        else:
            self._hash.update(piece)

    def digest(self) -> str:
        """Return the digest of everything taken in: 32 lower-case hex characters."""
        return self._hash.hexdigest()

    def matches(self) -> bool:
        """Return whether the digest found in the frame is the computed one."""
        return self._found == self.digest().encode("ascii")


def bounded_block_nbytes(start: Buffer, frame_nbytes: int) -> int:
    """Return the header block's length, read from the frame's first 8 bytes and bounded.

    Raises:
        FrameError: the frame is too short, or the length can't be right.
    """
    if frame_nbytes < MIN_FRAME_NBYTES or len(start) < _LENGTH_NBYTES:
        raise FrameError(FrameFault.TRUNCATED, f"{frame_nbytes} bytes")
    block_nbytes = _LENGTH_NBYTES + int.from_bytes(start[:_LENGTH_NBYTES], "little")
    if block_nbytes > MAX_BLOCK_NBYTES or block_nbytes % ALIGNMENT:
        raise FrameError(FrameFault.LENGTH, f"header block of {block_nbytes} bytes")
    if block_nbytes > frame_nbytes:
        raise FrameError(FrameFault.TRUNCATED, f"{frame_nbytes} bytes, header {block_nbytes}")
    return block_nbytes


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a name occurs twice"
        raise ValueError(msg)
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once_each)


def parse_header(block: Buffer, frame_nbytes: int) -> EntryHeader:
    """Parse a header block. It must have been verified first, unless only people will see the result.

    Args:
        block: the whole header block.
        frame_nbytes: length of the whole frame.

    Raises:
        FrameError: not a header of this format, or at odds with the frame's length.
    """
    if bytes(block[_LENGTH_NBYTES:DIGEST_OFFSET]) != _PREFIX or block[_DIGEST_END] != _QUOTE:
        raise FrameError(FrameFault.MALFORMED, "the digest does not come first")
    try:
        document = _DECODER.decode(_unpadded(bytes(block[_LENGTH_NBYTES:])).decode("utf-8"))
        metadata = document["__metadata__"]
        header = _header_of(metadata, len(block))
        whole = document == {"__metadata__": metadata, TENSOR_NAME: _tensor_entry(header.spec)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameError(FrameFault.MALFORMED, str(error)[:200]) from error
    if not whole:
        raise FrameError(FrameFault.MALFORMED, "the tensor's entry and the metadata disagree")
    if header.block_nbytes + header.spec.nbytes != frame_nbytes:
        detail = f"{frame_nbytes} bytes for a payload of {header.spec.nbytes}"
        raise FrameError(FrameFault.MALFORMED, detail)
    return header


def _unpadded(text: bytes) -> bytes:
    """Return *text* without the thousands of spaces behind it: a decoder would look at each."""
    end = text.rfind(b"}") + 1
    return text[:end] if text[end:] == _SPACES[: len(text) - end] else text


def _require_text(metadata: Mapping[str, str]) -> None:
    """Raise TypeError or ValueError unless every name and value is a str of whole characters."""
    "".join([*metadata, *metadata.values()]).encode("utf-8")


def _header_of(metadata: dict[str, Any], block_nbytes: int) -> EntryHeader:
    version = metadata["format"]
    if version != str(FORMAT_VERSION):
        raise FrameError(FrameFault.VERSION, f"format {str(version)[:20]!a}")
    _require_text(metadata)
    shape = [int(dim) for dim in metadata["shape"].split(",") if dim]
    return EntryHeader(
        namespace=metadata["namespace"],
        key_name=metadata["key"],
        mm_digest=metadata["mm_digest"],
        excerpt=metadata["mm_hash"],
        spec=TensorSpec(metadata["dtype"], shape),
        fields=MappingProxyType({k: v for k, v in metadata.items() if k not in _REQUIRED}),
        block_nbytes=block_nbytes,
    )


def check_identity(header: EntryHeader, ref: EntryRef) -> None:
    """Require that *header* is of the entry that *ref* asks for.

    Raises:
        FrameError: `IDENTITY`; another input whose 64-bit hash is equal, another content under an id
            that was used twice, a file renamed by hand, or one copied from another namespace.
    """
    found = (header.namespace, header.key_name, header.mm_digest)
    wanted = (ref.namespace, file_name(ref.key).removesuffix(SUFFIX), ref.mm_digest.hex())
    if found != wanted:
        raise FrameError(FrameFault.IDENTITY)
    if ref.content not in (None, header.fields.get(CONTENT_FIELD)):
        raise FrameError(FrameFault.IDENTITY, "stored for another content")


def open_verified(
    frame: memoryview, ref: EntryRef | None, *, verified: bool = False
) -> EntryHeader:
    """Verify *frame* and return its header; the payload is `frame[header.block_nbytes:]`.

    Args:
        frame: the whole frame, 1-D bytes.
        ref: what it must be; None where only its integrity is asked for.
        verified: its digest was computed elsewhere, while it was copied, and matched.

    Raises:
        FrameError: it is damaged or not what *ref* asks for.
    """
    block_nbytes = bounded_block_nbytes(frame[:_LENGTH_NBYTES], frame.nbytes)
    if not verified:
        hasher = FrameHasher()
        hasher.update(frame)
        if not hasher.matches():
            raise FrameError(FrameFault.DIGEST)
    header = parse_header(frame[:block_nbytes], frame.nbytes)
    if ref is not None:
        check_identity(header, ref)
    return header
