"""The namespace fingerprint: what must be equal for one server to use another's entries.

The ingredients are everything that changes an encoder output and is not in `mm_hash`. Which those are
is decided where the host framework is known; here is only how they become one name.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import attrs

FORMAT_VERSION = 1
"""Version of the entry format; part of every fingerprint and of every path."""

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


@functools.lru_cache(maxsize=64)
def _is_fingerprint(value: str) -> bool:
    """Return whether *value* is a fingerprint; remembered, since a process asks for few, and often."""
    return _FINGERPRINT.fullmatch(value) is not None


def valid_fingerprint(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    """Validate, for attrs, that a value is a fingerprint: one directory name, which leads nowhere else.

    Raises:
        ValueError: it is not.
    """
    if not _is_fingerprint(value):
        msg = f"{attribute.name} must be 16 lower-case hex digits, unlike {value[:40]!r}"
        raise ValueError(msg)


def _frozen_copy(ingredients: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(ingredients))


@attrs.frozen
class Namespace:
    """A set of entries that may stand in for one another's computation.

    Attributes:
        fingerprint: 16 lower-case hex digits.
        ingredients: what the fingerprint was made of, in words for an operator.
    """

    fingerprint: str = attrs.field(validator=valid_fingerprint)
    ingredients: Mapping[str, str] = attrs.field(converter=_frozen_copy, eq=False)

    @classmethod
    def from_ingredients(cls, ingredients: Mapping[str, str]) -> Self:
        """Return the namespace of *ingredients*: the same mapping gives the same fingerprint, anywhere.

        Two mappings that differ in a key or a value differ in fingerprint (up to a collision of 64
        bits of SHA-256); the order of keys has no influence.

        Raises:
            TypeError: a key or a value is not a str.
        """
        for name, value in ingredients.items():
            if not isinstance(name, str) or not isinstance(value, str):
                msg = f"identity is a mapping of str to str, but has {name!r}: {value!r}"
                raise TypeError(msg)
        # Not ASCII escapes: they write one character and a pair of lone surrogates alike.
        canonical = json.dumps(
            [FORMAT_VERSION, sorted(ingredients.items())], separators=(",", ":"), ensure_ascii=False
        )
        digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(digest[:16], ingredients)
