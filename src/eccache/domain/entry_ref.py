"""The reference to an entry: name and identity travel together."""

from __future__ import annotations

from typing import Self

import attrs

from eccache.domain.key import EntryKey, mm_digest
from eccache.domain.namespace import Namespace, valid_fingerprint

EXCERPT_CHARACTERS = 256
_DIGEST_NBYTES = 32
_valid_content = attrs.validators.optional(attrs.validators.matches_re(r"[0-9a-f]{64,128}"))


def _whole_digest(_: object, __: object, value: bytes) -> None:
    if len(value) != _DIGEST_NBYTES:
        msg = f"an mm_digest has {_DIGEST_NBYTES} bytes, not {len(value)}"
        raise ValueError(msg)


@attrs.frozen
class EntryRef:
    """Where an entry is and what it must be. Hashable, immutable.

    Two inputs whose 64-bit hashes collide have one `key` and differ in `mm_digest`.

    Attributes:
        namespace: fingerprint, 16 lower-case hex digits.
        key: names the file.
        mm_digest: SHA-256 of `mm_hash`, 32 bytes; see `domain.key.mm_digest`.
        excerpt: the first 256 characters of `mm_hash`, for people only.
        content: what the input's content is known to be, a digest in hex; None: the id is all that is
            known. An entry that was stored for another content, or without one, is not meant.
    """

    namespace: str = attrs.field(validator=valid_fingerprint)
    key: EntryKey
    mm_digest: bytes = attrs.field(validator=_whole_digest)
    excerpt: str = attrs.field(default="", eq=False)
    content: str | None = attrs.field(default=None, validator=_valid_content)

    @classmethod
    def for_mm_hash(
        cls, namespace: Namespace, model: str, mm_hash: str, dtype: object, *, variant: str = ""
    ) -> Self:
        """Return the reference of input *mm_hash*.

        Args:
            namespace: what must match for reuse.
            model: model name or path.
            mm_hash: the host framework's id of the input, any text.
            dtype: encoder dtype, as `find_dtype` takes it.
            variant: tells inputs of one id apart that must not share.

        Raises:
            TypeError: *mm_hash* is not a str.
        """
        digest = mm_digest(mm_hash, variant)
        key = EntryKey(model, int.from_bytes(digest[:8], "big"), dtype)
        return cls(namespace.fingerprint, key, digest, mm_hash[:EXCERPT_CHARACTERS])
