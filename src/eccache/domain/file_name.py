"""The file name of a key: one directory level, at most 255 bytes, different for different keys.

Bytes outside a small safe set are percent-encoded, as in a URL. A name that would be too long keeps
its readable start and its end; the middle becomes a digest. `~` is outside the safe set, so a
shortened name equals no other.
"""

from __future__ import annotations

import functools
import hashlib

from eccache.domain.dtypes import DTYPES
from eccache.domain.key import EntryKey

SUFFIX = ".safetensors"
MAX_NAME_NBYTES = 255
SHARD_DIGITS = 3
"""4,096 shards: a million entries are 244 files a directory."""

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@+=")
_DIGEST_DIGITS = 32


def escape(text: str) -> str:
    """Return *text* as ASCII of the safe set: every other UTF-8 byte, and a leading dot, as `%XX`."""
    data = text.encode("utf-8", "surrogatepass")
    escaped = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped


@functools.lru_cache(maxsize=64)
def _escaped_model(model_name: str) -> str:
    return escape(model_name)


def file_name(key: EntryKey) -> str:
    """Return the name of the file that holds *key*'s entry, without directories.

    It is `escape(key.to_string())` and the suffix, shortened where that is too long. The model's part
    is remembered, since a process asks for few models and many entries.
    """
    model = _escaped_model(key.model_name)
    end = f"@{key.WORLD_SIZE}@{key.WORKER_ID}@{key.chunk_hash:x}@{DTYPES[key.dtype].key_name}"
    if len(model) + len(end) + len(SUFFIX) <= MAX_NAME_NBYTES:
        return model + end + SUFFIX
    digest = hashlib.sha256((model + end).encode("ascii")).hexdigest()[:_DIGEST_DIGITS]
    tail = f"~{digest}{end}{SUFFIX}"
    return model[: MAX_NAME_NBYTES - len(tail)] + tail


def shard_name(key: EntryKey) -> str:
    """Return the shard directory of *key*: the first three hex digits of its zero-padded hash."""
    return f"{key.chunk_hash:016x}"[:SHARD_DIGITS]
