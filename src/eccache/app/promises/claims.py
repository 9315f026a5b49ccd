"""Who claims which promise, and what becomes of a promise that nobody claims any more."""

from __future__ import annotations

from eccache.app.promises.lookup_job import Lookups
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.app.promises.records import Promise, Request
from eccache.domain.outcomes import LookupOutcome
from eccache.domain.promise import PromiseState
from eccache.ports.lookup import Item
from eccache.ports.telemetry import Telemetry

_UNTOLD = frozenset({LookupOutcome.TIMEOUT.value, "bypassed"})
"""Counters of what could not be told for want of time or room."""


class Claims:
    """The requests and the promises of a ledger, and which of the ones claims which of the others.

    Args:
        lookups: is told of look-ups and copies that nobody wants any more.
        telemetry: takes what inputs come to that are not promised.

    Attributes:
        requests: by id.
        promises: PENDING and READY, by `mm_hash`.
        ready: the copies of those that are READY, by age.
    """

    def __init__(self, lookups: Lookups, telemetry: Telemetry) -> None:
        self._lookups = lookups
        self._telemetry = telemetry
        self.requests: dict[str, Request] = {}
        self.promises: dict[str, Promise] = {}
        self.ready: dict[str, PromisedCopy] = {}

    @staticmethod
    def claim(promise: Promise, request: Request, item: Item) -> None:
        """Let *request* wait for *promise*, or hold it, for *item*."""
        promise.claims[request.request_id] = item
        request.claims.add(item.mm_hash)

    def unclaim(self, promise: Promise, request: Request) -> None:
        """Take back a claim, if there is one; a promise without claims ends."""
        request.claims.discard(promise.mm_hash)
        promise.claims.pop(request.request_id, None)
        if not promise.claims:
            self.end(promise)

    def miss(
        self, promise: Promise, request: Request, counter: str, *, reason: str | None = None
    ) -> None:
        """Settle an input for this round of *request*: it will be computed."""
        self._telemetry.count(counter, reason=reason)
        request.missed.add(promise.mm_hash)
        if counter not in _UNTOLD:
            request.absent.add(promise.mm_hash)
        self.unclaim(promise, request)

    def miss_all(self, promise: Promise, counter: str, *, reason: str | None = None) -> None:
        """Settle an input for every request that claims it."""
        for request_id in list(promise.claims):
            self.miss(promise, self.requests[request_id], counter, reason=reason)

    def forget(self, promise: Promise) -> None:
        """Take back every claim of *promise*, which goes on."""
        for request_id in promise.claims:
            self.requests[request_id].claims.discard(promise.mm_hash)

    def end(self, promise: Promise) -> None:
        """End a promise wherever it stands; one that was never in the ledger is left alone."""
        self.forget(promise)
        self.promises.pop(promise.mm_hash, None)
        copy = self.ready.pop(promise.mm_hash, None)
        if copy is not None:
            self.release(copy)
        elif promise.job is not None:
            promise.state = PromiseState.ABANDONED
            self._lookups.abandon(promise.job)

    def release(self, copy: PromisedCopy) -> None:
        """Let go of one use of *copy*; the last one gives it back."""
        copy.users -= 1
        if not copy.users:
            self._lookups.dispose(copy)
