"""The scheduler's side: vLLM's calls, translated into the driving port `PromiseLookup`.

vLLM asks in this order, in every step and on one thread: for each multimodal request
`ensure_cache_available`, then for each of its inputs that lies in the step and is not on the
accelerator `has_cache_item`, then, once it has memory for all of them, `update_state_after_alloc`; at
the end of the step `build_connector_meta`. `has_cache_item` names no request, so the request is the one
for which `ensure_cache_available` was called last. An input that this request does not have is never
promised: should another vLLM ask in another order, it gets misses, not another request's rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import attrs

from eccache.adapters.vllm import features
from eccache.adapters.vllm.admission import Admission
from eccache.adapters.vllm.metadata import NO_WORK, ReportMetadata, StepMetadata, merged
from eccache.adapters.vllm.metrics import CacheTransferStats
from eccache.domain.policy import BypassReason
from eccache.ports.lookup import Content, Item, PromiseLookup, WorkerReport
from eccache.ports.telemetry import Level, Telemetry

_UNSETTLED: Final = sys.maxsize
MAX_EXTRA_ROUNDS: Final = 12
"""How often a request without media is looked up again for want of time or room, before it is given up."""


@attrs.define(eq=False)
class _Tracked:
    """What is remembered of a live request.

    Attributes:
        request_id: vLLM's id of it.
        feature_count: number of inputs it had; a streaming request gets more.
        items: its inputs that may be shared, by id.
        ends: for each input with rows the position behind its last token.
        bare: inputs that came without anything to run the encoder on.
        looked_up_from: the number of computed tokens from which on everything was looked up.
        settled_from: the number of computed tokens from which on nothing at all is to be done.
        extra_rounds: look-ups begun again since every bare input was last promised.
        unavailable: one of its inputs can be had from nowhere.
        allowed: inputs that the workers were allowed to save for it.
    """

    request_id: str
    feature_count: int
    items: dict[str, Item] = attrs.field(factory=dict)
    ends: dict[str, int] = attrs.field(factory=dict)
    bare: set[str] = attrs.field(factory=set)
    looked_up_from: int = _UNSETTLED
    settled_from: int = _UNSETTLED
    extra_rounds: int = 0
    unavailable: bool = False
    allowed: set[str] = attrs.field(factory=set)


@attrs.frozen(kw_only=True)
class SchedulerRole:
    """What this server does.

    Attributes:
        saves: encoder outputs are stored (producer).
        loads: encoder outputs are served (consumer).
    """

    saves: bool
    loads: bool


class DrainedTelemetry(Telemetry, Protocol):
    """Telemetry whose counts can be taken out, to be sent elsewhere."""

    def take_report(self) -> WorkerReport | None:
        """Return what was counted and observed since the last call; None if nothing."""
        ...


class SchedulerSide:
    """Called by vLLM's scheduler, from its one thread. Knows requests; the port knows items.

    Args:
        lookup: the cache.
        admission: which inputs may be shared, and as what.
        role: what this server does.
        telemetry: takes `bypassed` by reason; its counts, with those of the workers, become statistics.
        weights_intact: whether the encoder still has the weights that it had at the start; asked once in
            each step before anything is looked up or promised. vLLM replaces them between steps, on the
            scheduler's thread.
        received_aside: reports that workers sent past vLLM, each once.
        was_emptied: whether the accelerator's outputs were thrown away, weights unchanged, since this was
            last asked; asked along with *weights_intact*.
    """

    def __init__(
        self,
        lookup: PromiseLookup,
        admission: Admission,
        role: SchedulerRole,
        telemetry: DrainedTelemetry,
        weights_intact: Callable[[], bool] = lambda: True,
        received_aside: Callable[[], Iterable[WorkerReport]] = tuple,
        was_emptied: Callable[[], bool] = lambda: False,
    ) -> None:
        self._lookup = lookup
        self._admission = admission
        self._role = role
        self._telemetry = telemetry
        self._weights_intact = weights_intact
        self._received_aside = received_aside
        self._was_emptied = was_emptied
        self._stopped = False
        self._weights_asked = False
        self._tracked: dict[str, _Tracked] = {}
        self._by_item: dict[str, set[str]] = {}
        self._claimed: dict[str, Item] = {}
        self._resident: set[str] = set()
        self._asking: _Tracked | None = None
        self._answered: set[str] = set()
        self._unavailable: set[str] = set()
        self._reported = WorkerReport()

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        """Return False while entries that *request* still needs are being fetched.

        Called in every step for every multimodal request, also while it decodes: a dict access and a
        comparison where there is nothing to do.
        """
        self._asking = None  # should this fail, nothing is promised in another request's name
        self._answered.clear()
        tracked = self._tracked.get(request.request_id)
        if (
            tracked is not None
            and tracked.settled_from <= num_computed_tokens
            and tracked.feature_count == len(request.mm_features)
        ):
            self._asking = tracked
            return True
        return self._settle(request, num_computed_tokens, tracked)

    def has_cache_item(self, identifier: str) -> bool:
        """Return whether a verified copy of the input is at hand: from then on a promise."""
        asking = self._asking
        if asking is None or not self._role.loads:
            return False
        if identifier not in self._resident and not self._lookup.is_promised(identifier):
            return False  # as of nearly all: the weights are not asked about
        self._is_stopped()  # once a step: after a word was given, it would be broken by letting go
        resident = identifier in self._resident
        # vLLM asks only for what is not on the accelerator, whatever we believed.
        self._resident.discard(identifier)
        if identifier in asking.items and self._lookup.is_promised(identifier):
            self._answered.add(identifier)
            return True
        # What another request evicts in the step in which this one gets it back never leaves the workers.
        # Anybody else runs the encoder all the same; without media there is nothing to run it on.
        return resident and identifier in asking.bare

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """Turn the promise given for an input in this step into a load, or let the input be saved."""
        feature = request.mm_features[index]
        identifier = feature.identifier
        self._resident.add(identifier)
        tracked = self._tracked.get(request.request_id)
        item = None if tracked is None else tracked.items.get(identifier)
        promised = identifier in self._answered
        if item is None and promised:  # it can't be taken back: vLLM will not run the encoder
            item = Item(identifier, features.rows_of(feature))
        if item is not None:
            if tracked is not None and self._role.saves:
                tracked.allowed.add(identifier)
            self._lookup.allocated(request.request_id, item, storable=self._role.saves)

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        """Return what the workers are to do in this step, and take note of what left the accelerator."""
        for identifier in scheduler_output.free_encoder_mm_hashes:
            self._resident.discard(identifier)
            for request_id in self._by_item.get(identifier, ()):
                tracked = self._tracked[request_id]
                tracked.settled_from = tracked.looked_up_from = _UNSETTLED
        self._asking = None
        self._answered.clear()
        self._weights_asked = False
        plan = self._lookup.take_step()
        return StepMetadata(plan) if plan.loads or plan.saves else NO_WORK

    def update_connector_output(self, connector_output: Any) -> None:
        """Take in what the workers did."""
        metadata = connector_output.ec_connector_worker_meta
        if isinstance(metadata, ReportMetadata):
            self._take_in(metadata.report)

    def take_stats(self) -> CacheTransferStats | None:
        """Return what scheduler and workers counted since the last call; None if nothing."""
        for report in self._received_aside():
            self._take_in(report)
        reported, self._reported = self._reported, WorkerReport()
        counted = self._telemetry.take_report()
        return CacheTransferStats.of(reported if counted is None else merged(reported, counted))

    def take_unavailable_requests(self) -> set[str]:
        """Return the requests that can't be served, each once; vLLM fails them, and a proxy retries."""
        unavailable, self._unavailable = self._unavailable, set()
        return unavailable

    def request_finished(self, request: Any) -> None:
        """Forget *request*, wherever it stands."""
        tracked = self._tracked.pop(request.request_id, None)
        if tracked is None:
            return
        self._unclaim(tracked)
        self._unavailable.discard(tracked.request_id)
        self._lookup.finished(tracked.request_id)

    def is_shared(self, request: Any, identifier: str) -> bool:
        """Return whether that input of *request* may be stored and served."""
        tracked = self._tracked.get(request.request_id)
        return tracked is not None and identifier in tracked.items

    def will_be_found(
        self, request: Any, identifier: str, is_there: Callable[[Item], bool]
    ) -> bool:
        """Return whether another server can count on finding that input of *request*.

        It can if the input was encoded for this request, and so is being stored, or *is_there* already. An
        output that lay on the accelerator is stored by nobody, and its entry may be gone since.
        """
        tracked = self._tracked.get(request.request_id)
        item = None if tracked is None else tracked.items.get(identifier)
        if tracked is None or item is None:
            return False
        return identifier in tracked.allowed or is_there(item)

    def content(self, request: Any, identifier: str) -> Content | None:
        """Return what is known of that input of *request*, if it may be stored."""
        tracked = self._tracked.get(request.request_id)
        item = None if tracked is None else tracked.items.get(identifier)
        return None if item is None else item.content

    def close(self) -> None:
        """End every look-up. Idempotent."""
        self._lookup.close()

    def _take_in(self, report: WorkerReport) -> None:
        self._lookup.report(report)
        self._admission.made(report.made)
        self._reported = merged(self._reported, report)

    def _settle(self, request: Any, computed: int, tracked: _Tracked | None) -> bool:
        """Start or continue what *request* needs; True once there is nothing left to wait for."""
        self._is_stopped()
        if tracked is None or tracked.feature_count != len(request.mm_features):
            tracked = self._track(request, tracked)
        self._asking = tracked
        if tracked.unavailable:
            return False
        if self._role.loads:
            needed = {identifier for identifier, end in tracked.ends.items() if end > computed}
            absent = needed - self._resident
            if computed < tracked.looked_up_from:
                items = [item for key, item in tracked.items.items() if key in absent]
                if items and not self._lookup.ensure(tracked.request_id, items):
                    return False
                tracked.looked_up_from = computed
            if needed & tracked.bare:
                # Without an encoder to fall back to, all of it is looked at again in every step.
                return self._can_be_served(tracked, absent & tracked.bare)
        tracked.settled_from = computed
        return True

    def _can_be_served(self, tracked: _Tracked, bare: set[str]) -> bool:
        """Return whether every input that no encoder can make is promised; else give up the request.

        Not for want of time or room: many requests that come at once have to wait for one another.
        """
        for identifier in bare:
            shared = identifier in tracked.items
            if shared and self._lookup.is_promised(identifier):
                continue
            if (
                shared
                and tracked.extra_rounds < MAX_EXTRA_ROUNDS
                and self._lookup.may_be_found(tracked.request_id, identifier)
            ):
                tracked.extra_rounds += 1
                tracked.looked_up_from = _UNSETTLED
                return False
            tracked.unavailable = True
            self._unavailable.add(tracked.request_id)
            self._telemetry.count("unavailable")
            self._telemetry.event(
                Level.WARNING,
                "vllm.request.unavailable",
                request=tracked.request_id[:80],
                mm_hash=identifier[:80],
                cause="the request carries no media, and no encoder output was found",
                remedy="send the media with the request, or check that the producer shares its root",
            )
            return False
        tracked.extra_rounds = 0
        return True

    def _track(self, request: Any, before: _Tracked | None) -> _Tracked:
        """Look at every input of *request* once and remember those that may be shared."""
        if before is not None:
            self._unclaim(before)
        tracked = _Tracked(request.request_id, len(request.mm_features))
        self._tracked[tracked.request_id] = tracked
        known: set[str] = set() if before is None else set(before.ends)
        for identifier, same in features.grouped(request.mm_features).items():
            tracked.ends[identifier] = max(features.end_of(feature) for feature in same)
            bare = self._admission.is_bare(same)
            if bare:
                tracked.bare.add(identifier)
            admitted = self._admitted(request, identifier, same, bare=bare)
            if isinstance(admitted, Item):
                tracked.items[identifier] = admitted
                self._claim(tracked, identifier)
            elif identifier not in known:
                self._telemetry.count("bypassed", reason=admitted.value)
        return tracked

    def _admitted(
        self, request: Any, identifier: str, same: list[Any], *, bare: bool
    ) -> Item | BypassReason:
        if self._stopped:
            return BypassReason.WEIGHTS
        item = self._admission.item(request, identifier, same, bare=bare)
        if isinstance(item, BypassReason):
            return item
        claimed = self._claimed.get(identifier)
        if claimed is not None:
            if item.content is None:  # who knows the id alone takes what it stands for now
                item = attrs.evolve(item, content=claimed.content)
            if not _alike(item, claimed):
                return BypassReason.CONFLICT
        if identifier not in self._resident:
            self._admission.prepare(item)
        return item

    def _is_stopped(self) -> bool:
        """Return whether nothing may be shared any more; find out, and let go of everything then."""
        if self._weights_asked:
            return self._stopped
        self._weights_asked = True
        if not self._stopped and not self._weights_intact():
            self._stopped = True
            self._telemetry.event(
                Level.WARNING,
                "vllm.weights.replaced",
                cause="vLLM emptied its encoder cache, as it does for other weights and before it sleeps",
                effect="this server stores and serves nothing any more",
                remedy="restart it; or set fixed_weights, if nothing ever replaces its weights",
            )
            for tracked in self._tracked.values():
                self._unclaim(tracked)
                tracked.items.clear()
                self._lookup.finished(tracked.request_id)
            self._forget_residents()
        elif self._was_emptied():
            self._forget_residents()
        return self._stopped

    def _forget_residents(self) -> None:
        """Nothing is on the accelerator any more: look again at what every request needs."""
        self._resident.clear()
        for tracked in self._tracked.values():
            tracked.settled_from = tracked.looked_up_from = _UNSETTLED

    def _claim(self, tracked: _Tracked, identifier: str) -> None:
        self._claimed.setdefault(identifier, tracked.items[identifier])
        self._by_item.setdefault(identifier, set()).add(tracked.request_id)

    def _unclaim(self, tracked: _Tracked) -> None:
        for identifier in tracked.items:
            claims = self._by_item[identifier]
            claims.discard(tracked.request_id)
            if not claims:
                del self._by_item[identifier]
                del self._claimed[identifier]


def _alike(first: Item, second: Item) -> bool:
    """Return whether one copy serves both: a promise is given by id alone, so one id stands for one thing."""
    if (first.num_embeds, first.variant) != (second.num_embeds, second.variant):
        return False
    if first.content is second.content:
        return True
    digests = [item.content and item.content.digest() for item in (first, second)]
    return digests[0] is not None and digests[0] == digests[1]
