"""The key that names an entry: model, stable hash of the input's id, encoder dtype.

The text form is LMCache's `CacheEngineKey`, so that both systems name one thing alike:
`<model>@<world_size>@<worker_id>@<chunk_hash in hex>@<dtype>`. World size and worker are sentinels:
an encoder output is the same on every tensor-parallel rank, so rank and KV-cache dtype have no part
in the name.
"""

from __future__ import annotations

import hashlib
import re
from typing import ClassVar, Self

import attrs

from eccache.domain.dtypes import canonical_dtype, find_dtype
from eccache.domain.errors import KeyFormatError

_HEX = re.compile(r"0|[1-9a-f][0-9a-f]{0,15}")


_NOT_IN_UTF8 = b"\xff"


def mm_digest(mm_hash: str, variant: str = "") -> bytes:
    """Return the 32-byte SHA-256 of *mm_hash*: the identity that 64 bits of a key can't give.

    Lone surrogates are encoded as they stand (`surrogatepass`), so that any str has a digest.

    Args:
        mm_hash: the host framework's id of the input, any text.
        variant: tells inputs of one id apart that must not share, e.g. a tenant's. What is hashed is then
            `FF variant FF mm_hash`: no text has the byte FF in UTF-8, so that no id, whoever chose it,
            gives the digest of another id's variant.

    Raises:
        TypeError: *mm_hash* is not a str.
    """
    if not isinstance(mm_hash, str):
        msg = f"an mm_hash is a str, not {type(mm_hash).__name__}; pass its text form"
        raise TypeError(msg)
    text = mm_hash.encode("utf-8", "surrogatepass")
    if variant:
        marked = variant.encode("utf-8", "surrogatepass")
        text = _NOT_IN_UTF8.join((b"", marked, text))
    return hashlib.sha256(text).digest()


def stable_u64(text: str) -> int:
    """Return the first 8 bytes of SHA-256 over *text* in UTF-8, as a big-endian unsigned integer.

    The value depends on nothing but *text*: not on the process, `PYTHONHASHSEED`, the platform or
    the Python version. Equals LMCache's `chunk_hash` of an encoder output.

    Raises:
        TypeError: *text* is not a str.
    """
    return int.from_bytes(mm_digest(text)[:8], "big")


# One check a field: the reference of an input is made for each of the scheduler's questions.


def _valid_model_name(_: object, __: object, value: str) -> None:
    if not isinstance(value, str):
        msg = f"a model_name is a str, not {type(value).__name__}"
        raise TypeError(msg)
    if not value:
        msg = "an entry key needs a model name"
        raise KeyFormatError(msg, remedy="pass the model's name or path")


def _valid_chunk_hash(_: object, __: object, value: int) -> None:
    if not 0 <= value < 1 << 64:
        msg = f"a chunk_hash has 64 bits and no sign, unlike {value}"
        raise ValueError(msg)


@attrs.frozen
class EntryKey:
    """The name of an entry within a namespace. Hashable, immutable, safe to share between threads.

    Attributes:
        model_name: the model as the host framework names it, any non-empty text.
        chunk_hash: `stable_u64(mm_hash)`, 0 <= chunk_hash < 2**64.
        dtype: encoder dtype under torch's name, e.g. `"bfloat16"`.
    """

    WORLD_SIZE: ClassVar[int] = 1
    WORKER_ID: ClassVar[int] = 0

    model_name: str = attrs.field(validator=_valid_model_name)
    chunk_hash: int = attrs.field(validator=_valid_chunk_hash)
    dtype: str = attrs.field(converter=canonical_dtype)

    @classmethod
    def for_mm_hash(cls, model: str, mm_hash: str, dtype: object) -> Self:
        """Return the key of input *mm_hash* under *model* with encoder outputs of *dtype*.

        Args:
            model: model name or path.
            mm_hash: the host framework's id of the input, any text.
            dtype: a name that `find_dtype` knows, or a `torch.dtype`.

        Raises:
            TypeError: *mm_hash* is not a str.
            ValueError: unknown dtype or empty model name.
        """
        return cls(model, stable_u64(mm_hash), dtype)

    def to_string(self) -> str:
        """Return the text form, e.g. `Qwen/Qwen2-VL@1@0@1b37bcaf5995f78@bfloat16`."""
        key_name = find_dtype(self.dtype).key_name
        return (
            f"{self.model_name}@{self.WORLD_SIZE}@{self.WORKER_ID}@{self.chunk_hash:x}@{key_name}"
        )

    @classmethod
    def from_string(cls, text: str) -> Self:
        """Return the key whose text form is *text*; the inverse of `to_string`.

        Raises:
            KeyFormatError: *text* is not what `to_string` writes, to the character.
        """
        parts = text.rsplit("@", 4)
        sentinels = [str(cls.WORLD_SIZE), str(cls.WORKER_ID)]
        if len(parts) != 5 or parts[1:3] != sentinels or not _HEX.fullmatch(parts[3]):  # noqa: PLR2004 - five parts
            msg = f"{text[:200]!r} is not <model>@1@0@<hash in hex>@<dtype>"
            raise KeyFormatError(msg, remedy="use EntryKey.to_string to make the text")
        try:
            dtype = find_dtype(parts[4])
        except ValueError as unknown:
            raise KeyFormatError(str(unknown)) from unknown
        if dtype.key_name != parts[4]:
            msg = f"dtype {parts[4]!r} is written {dtype.key_name!r} in a key"
            raise KeyFormatError(msg)
        return cls(parts[0], int(parts[3], 16), dtype.name)
