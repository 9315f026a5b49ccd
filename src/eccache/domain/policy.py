"""Which inputs may be shared at all: decided from configuration first, from the id's look second.

An id is safe to share if it is a digest of the content that it names. From the text of an id alone
that can't be told: a client may write 64 hex digits, a server may hash a client's id together with a
request's options, and one that numbers its inputs may hash the number. So whatever configuration makes
ids that are no digests is ruled out before the pattern is asked, and an entry is bound to the content
itself wherever that is at hand.
"""

from __future__ import annotations

import enum
import hashlib
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
    UNPROVEN = "unproven"
    """Which weights the encoder has, or whether it keeps them, can't be told."""
    WEIGHTS = "weights"
    """The weights were replaced, or may have been, while the server ran."""
    LORA = "lora"
    """An adapter changes the encoder, and its content is not known."""
    PASSTHROUGH = "passthrough"
    """The client sent the embedding itself; nothing is computed that could be saved."""
    SALTED = "salted"
    """The request is isolated from others by a salt."""
    CLIENT_ID = "client_id"
    """The id is not a digest of content, and the operator does not trust it."""
    UNBOUND = "unbound"
    """The id is trusted where the content is known too, and the content is not at hand."""
    CONFLICT = "conflict"
    """Another live request uses the same id for something else."""


@attrs.frozen(kw_only=True)
class InputFacts:
    """What is known of one input when its request arrives.

    Attributes:
        input_id: the framework's id of the input, without an adapter's name.
        salt: of the request; None: it carries none.
        passthrough: the input is an embedding already.
        adapter: digest of the adapter that changes the encoder for this request; None: none does; empty:
            one does, and its content is not known.
        content_known: a digest of what the encoder reads can be had.
    """

    input_id: str
    salt: str | None = None
    passthrough: bool = False
    adapter: str | None = None
    content_known: bool = False


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(pattern)


@attrs.frozen(kw_only=True)
class SharingPolicy:
    """Decides which inputs bypass the cache, and as what the others are shared. Any thread may ask.

    Attributes:
        digest_digits: hex digits of a content digest as this server makes them.
        encoder_decoder: the model is one whose outputs can't be shared; everything is bypassed.
        unproven: which weights the encoder has can't be told; everything is bypassed.
        trust_client_ids: every id may be shared, bound to its content.
        trusted_ids: ids that match as a whole may be shared, bound to their content; None: only digests.
        bind_content: what looks like a digest is bound to its content too, where that is at hand.
        isolate_salted: salted requests share among those of one salt; else they are bypassed.
    """

    digest_digits: int = 64
    encoder_decoder: bool = False
    unproven: bool = False
    trust_client_ids: bool = False
    trusted_ids: re.Pattern[str] | None = attrs.field(default=None, converter=_compiled)
    bind_content: bool = True
    isolate_salted: bool = False
    _digest: re.Pattern[str] = attrs.field(init=False, eq=False, repr=False)

    @_digest.default
    def _digest_pattern(self) -> re.Pattern[str]:
        return re.compile(f"[0-9a-f]{{{self.digest_digits}}}")

    def bypass(self, facts: InputFacts) -> BypassReason | None:
        """Return why the input of *facts* is neither stored nor served, or None if it may be shared."""
        for reason, holds in (
            (BypassReason.ENCODER_DECODER, self.encoder_decoder),
            (BypassReason.UNPROVEN, self.unproven),
            (BypassReason.PASSTHROUGH, facts.passthrough),
            (BypassReason.LORA, not facts.adapter and facts.adapter is not None),
            (BypassReason.SALTED, facts.salt is not None and not self.isolate_salted),
            (BypassReason.CLIENT_ID, not self._may_share(facts.input_id)),
            (BypassReason.UNBOUND, self._trusts_clients and not facts.content_known),
        ):
            if holds:
                return reason
        return None

    @property
    def binds(self) -> bool:
        """Whether entries are bound to a digest of their content where it is at hand.

        Where clients' ids are trusted always, also those that look like digests: a server hashes a
        client's id together with a request's options, and the result looks like one.
        """
        return self.bind_content or self._trusts_clients

    @staticmethod
    def variant(facts: InputFacts) -> str:
        """Return what tells inputs of one id apart that must not share; empty for the plain input."""
        parts = []
        if facts.adapter:
            parts.append(f"adapter {facts.adapter}")
        if facts.salt is not None:
            text = facts.salt.encode("utf-8", "surrogatepass")
            parts.append(f"salt {hashlib.sha256(text).hexdigest()}")
        return ", ".join(parts)

    @property
    def _trusts_clients(self) -> bool:
        return self.trust_client_ids or self.trusted_ids is not None

    def _may_share(self, input_id: str) -> bool:
        return (
            self.trust_client_ids
            or self._digest.fullmatch(input_id) is not None
            or (self.trusted_ids is not None and self.trusted_ids.fullmatch(input_id) is not None)
        )
