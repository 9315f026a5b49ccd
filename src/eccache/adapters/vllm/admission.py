"""Which of a request's inputs may be shared, and as what: vLLM's objects, put before the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from eccache.adapters.vllm import features
from eccache.adapters.vllm.content import promised_content
from eccache.domain.policy import BypassReason, InputFacts, SharingPolicy
from eccache.ports.lookup import Content, Item


class KnowsContents(Protocol):
    """Knows what inputs are, beyond their ids; see `adapters.vllm.content.Contents`."""

    def of(self, feature: Any) -> Content | None:
        """Return the content of an input; None where it is not at hand."""
        ...

    def start(self, content: Content) -> None:
        """Let its digest be taken, which will be needed soon."""
        ...


@attrs.frozen(kw_only=True)
class Knowledge:
    """What is known of inputs beyond their ids.

    Attributes:
        contents: what they are; None: not asked for.
        adapter: returns the digest of what an adapter consists of, empty where that is not known; None:
            adapters don't reach the encoder.
        widths: values in a row of the encoder's output, by modality, where vLLM has measured them.
        dtype: torch's name of the element type that this server's encoder makes; None: it has none.
    """

    contents: KnowsContents | None = None
    adapter: Callable[[Any], str] | None = None
    widths: Mapping[str, int] = attrs.field(factory=dict)
    dtype: str | None = None


class Admission:
    """Decides for one input of one request. Used by one thread.

    Args:
        policy: which inputs may be shared.
        knowledge: what is known of them.
        metadata_fields: names of the fields of a modality that only size its place in the prompt.
    """

    def __init__(
        self,
        policy: SharingPolicy,
        knowledge: Knowledge,
        metadata_fields: Callable[[str], Iterable[str]],
    ) -> None:
        self._policy = policy
        self._knowledge = knowledge
        self._metadata_fields = metadata_fields
        self._made: set[str] = set()

    def is_bare(self, same: Iterable[Any]) -> bool:
        """Return whether one of the occurrences of an input came without anything to encode."""
        return any(features.lacks_input(feature, self._metadata_fields) for feature in same)

    def item(
        self, request: Any, identifier: str, same: Sequence[Any], *, bare: bool
    ) -> Item | BypassReason:
        """Return as what an input may be shared, or why it may not.

        Args:
            request: vLLM's request.
            identifier: vLLM's id of the input.
            same: its occurrences in the request.
            bare: it came without anything to encode.
        """
        feature = same[0]
        rows = {features.rows_of(one) for one in same}
        content = self._content(request, identifier, feature, bare=bare)
        facts = InputFacts(
            input_id=self._input_id(request, feature),
            salt=request.cache_salt,
            passthrough=any(features.is_passthrough(one) for one in same),
            adapter=self._adapter(request),
            content_known=content is not None,
        )
        reason = self._policy.bypass(facts)
        if reason is None and len(rows) > 1:
            reason = BypassReason.CONFLICT
        if reason is not None:
            return reason
        return Item(
            identifier,
            rows.pop(),
            expected=features.is_expected(request, identifier),
            required=bare,
            variant=self._policy.variant(facts),
            content=content,
            width=self._knowledge.widths.get(feature.modality),
            dtype=self._dtype(),
        )

    def prepare(self, item: Item) -> None:
        """Let what will be needed of *item*'s content be taken beside this thread."""
        if item.content is not None and self._knowledge.contents is not None:
            self._knowledge.contents.start(item.content)

    def made(self, dtypes: Iterable[str]) -> None:
        """Note the element types that the encoder made: whatever vLLM was configured for, it makes those."""
        self._made.update(dtypes)

    def _dtype(self) -> str | None:
        if not self._made:
            return self._knowledge.dtype
        return next(iter(self._made)) if len(self._made) == 1 else None

    def _content(
        self, request: Any, identifier: str, feature: Any, *, bare: bool
    ) -> Content | None:
        if not self._policy.binds:
            return None
        if bare:
            return promised_content(request, identifier)
        contents = self._knowledge.contents
        return None if contents is None else contents.of(feature)

    def _adapter(self, request: Any) -> str | None:
        if self._knowledge.adapter is None or request.lora_request is None:
            return None
        return self._knowledge.adapter(request.lora_request)

    def _input_id(self, request: Any, feature: Any) -> str:
        """Return the id without the adapter's name that vLLM has put before it."""
        without = getattr(feature, "mm_hash", None)
        adapted = self._knowledge.adapter is not None and request.lora_request is not None
        return str(without if adapted and without else feature.identifier)
