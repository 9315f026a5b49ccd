"""Which inputs may be shared at all: decided from configuration first, from the id's look second.

An id is safe to share if it is a digest of the content that it names. From the text of an id alone
that can't be told: a client may write 64 hex digits, and a server that numbers its inputs may hash the
number. So whatever configuration makes ids that are no digests is ruled out before the pattern is asked.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

HEX_DIGITS: Final[Mapping[str, int]] = MappingProxyType({"blake3": 64, "sha256": 64, "sha512": 128})
"""Hex digits of a digest, by the name of its algorithm."""


class BypassReason(enum.Enum):
    """Why an input is neither stored nor served. The value is a metric's label."""

    ENCODER_DECODER = "encoder_decoder"
    """The model's encoder output has no place of its own that could be filled."""
    LORA = "lora"
    """An adapter changes the encoder, and its content is not known."""
    PASSTHROUGH = "passthrough"
    """The client sent the embedding itself; nothing is computed that could be saved."""
    SALTED = "salted"
    """The request is isolated from others by a salt."""
    CLIENT_ID = "client_id"
    """The id is not a digest of content, and the operator does not trust it."""
    ROWS = "rows"
    """Another live request uses the same id for another number of rows."""


@attrs.frozen(kw_only=True)
class InputFacts:
    """What is known of one input when its request arrives.

    Attributes:
        input_id: the framework's id of the input.
        salted: the request carries a salt.
        passthrough: the input is an embedding already.
        adapter: a request-level adapter changes the encoder's output.
    """

    input_id: str
    salted: bool = False
    passthrough: bool = False
    adapter: bool = False


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)


@attrs.frozen(kw_only=True)
class SharingPolicy:
    """Decides which inputs bypass the cache. Immutable; any thread may ask.

    Attributes:
        digest_digits: hex digits of a content digest as this server makes them.
        encoder_decoder: the model is one whose outputs can't be shared; everything is bypassed.
        trust_client_ids: every id is taken at its word.
        trusted_ids: ids that match as a whole are taken at their word; None: only digests.
    """

    digest_digits: int = 64
    encoder_decoder: bool = False
    trust_client_ids: bool = False
    trusted_ids: re.Pattern[str] | None = attrs.field(default=None, converter=_compiled)
    _digest: re.Pattern[str] = attrs.field(init=False, eq=False, repr=False)

    @_digest.default
    def _digest_pattern(self) -> re.Pattern[str]:
        return re.compile(f"[0-9a-f]{{{self.digest_digits}}}")

    def bypass(self, facts: InputFacts) -> BypassReason | None:
        """Return why the input of *facts* is neither stored nor served, or None if it may be shared."""
        if self.encoder_decoder:
            return BypassReason.ENCODER_DECODER
        if facts.passthrough:
            return BypassReason.PASSTHROUGH
        if facts.adapter:
            return BypassReason.LORA
        if facts.salted:
            return BypassReason.SALTED
        if not self._trusts(facts.input_id):
            return BypassReason.CLIENT_ID
        return None

    def _trusts(self, input_id: str) -> bool:
        return (
            self.trust_client_ids
            or self._digest.fullmatch(input_id) is not None
            or (self.trusted_ids is not None and self.trusted_ids.fullmatch(input_id) is not None)
        )
