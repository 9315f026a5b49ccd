"""Ledgers from each of which one mechanism was taken away."""

import attrs

from eccache.app.promises.claims import Claims
from eccache.app.promises.ledger import LedgerParts, PromiseLedger
from eccache.app.promises.loads import LoadsInFlight
from eccache.app.promises.lookup_job import Finding
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.app.promises.records import Promise, Request
from eccache.domain.promise import PromiseState
from eccache.ports.lookup import Item, WorkerReport
from tests.stateful.ledger_machine import LIMITS, RANKS


class PromisesWhatIsPending(PromiseLedger):
    """Says True before the copy was verified."""

    def is_promised(self, mm_hash: str) -> bool:
        """See the class."""
        return mm_hash in self._promises


class PromisesWhatIsThere(PromiseLedger):
    """Says True because the store has it."""

    def is_promised(self, mm_hash: str) -> bool:
        """See the class."""
        return bool(self._probe(self._ref_of(Item(mm_hash, 0))))


class IgnoresRows(PromiseLedger):
    """Takes a copy for whatever was asked for."""

    def _conclude(self, promise: Promise, finding: Finding, now: float) -> None:
        if isinstance(finding, PromisedCopy):
            promise.claims = {
                request_id: attrs.evolve(item, num_embeds=finding.rows or 0)
                for request_id, item in promise.claims.items()
            }
        super()._conclude(promise, finding, now)


class ForgetsNoRequest(PromiseLedger):
    """Keeps what an aborted request held."""

    def finished(self, request_id: str) -> None:
        """See the class."""
        self._catch_up(self._clock.monotonic())


class NeverGivesUpWaiting(PromiseLedger):
    """Waits for as long as the look-up takes."""

    def _give_up_waiting(self, request: Request) -> None:
        del self._deferred[request.request_id]
        request.deadline = self._clock.monotonic() + LIMITS.lookup_timeout_seconds
        self._deferred[request.request_id] = request


class DefersEveryone(PromiseLedger):
    """Has no bound of deferred requests."""

    def _may_wait(self, request: Request, now: float) -> bool:
        request.deadline = min(request.deadline, now + LIMITS.lookup_timeout_seconds)
        self._deferred.setdefault(request.request_id, request)
        return True


class DefersMisses(PromiseLedger):
    """Looks up what it could know to be absent."""

    def _look_up(self, request: Request, item: Item, now: float) -> None:
        super()._look_up(request, attrs.evolve(item, expected=True), now)


class ClosesAtTheFirstAcknowledgement(PromiseLedger):
    """Takes one rank for all."""

    def report(self, report: WorkerReport) -> None:
        """See the class."""
        super().report(WorkerReport(acks=dict.fromkeys(report.acks, RANKS)))


class ClosesWhatIsBeingLoaded(PromiseLedger):
    """Lets a copy go with the promise, while the workers have yet to map it."""

    def allocated(self, request_id: str, item: Item, *, storable: bool) -> None:
        """See the class."""
        copy = self._ready.get(item.mm_hash)
        super().allocated(request_id, item, storable=storable)
        if copy is not None:
            self._lookups.dispose(copy)


class _WithClaims(PromiseLedger):
    """A ledger whose claims are of another kind."""

    claims: type[Claims]

    def __init__(self, parts: LedgerParts, **bounds: object) -> None:
        super().__init__(parts, limits=LIMITS, ranks=RANKS)
        self._claims.__class__ = self.claims
        self._loads = LoadsInFlight(RANKS, LIMITS.load_ack_timeout_seconds, self._claims.release)


class CountsNoUses(_WithClaims):
    """Closes a copy that was promised again when its first load is over."""

    class claims(Claims):  # noqa: N801 - stands in the place of an attribute
        """See the class around it."""

        def release(self, copy: PromisedCopy) -> None:
            """Forget who else uses it."""
            copy.users = 1
            super().release(copy)


class NeverAges(_WithClaims):
    """Keeps loads that nobody acknowledges, and takes their memory away from all."""

    class claims(Claims):  # noqa: N801 - stands in the place of an attribute
        """See the class around it."""

        def end(self, promise: Promise) -> None:
            """Keep the copy."""
            if promise.state is PromiseState.READY:
                self.promises.pop(promise.mm_hash, None)
                self.ready.pop(promise.mm_hash, None)
                return
            super().end(promise)


class LeavesLookUpsRunning(_WithClaims):
    """Abandons nothing."""

    class claims(Claims):  # noqa: N801 - stands in the place of an attribute
        """See the class around it."""

        def end(self, promise: Promise) -> None:
            """End what is not being looked up."""
            if promise.job is None:
                super().end(promise)


class PlansTwice(PromiseLedger):
    """Tells the workers of a load again."""

    def __init__(self, parts: LedgerParts, **bounds: object) -> None:
        super().__init__(parts, limits=LIMITS, ranks=RANKS)
        self._loads = TwicePlanned(RANKS, LIMITS.load_ack_timeout_seconds, self._claims.release)


class TwicePlanned(LoadsInFlight):
    """Loads whose ids are used twice."""

    def begin(self, mm_hash: str, copy: PromisedCopy) -> None:
        """See the class."""
        super().begin(mm_hash, copy)
        self._planned.append(self._planned[-1])


BROKEN = [
    PromisesWhatIsPending,
    PromisesWhatIsThere,
    IgnoresRows,
    ForgetsNoRequest,
    NeverGivesUpWaiting,
    DefersEveryone,
    DefersMisses,
    ClosesAtTheFirstAcknowledgement,
    ClosesWhatIsBeingLoaded,
    CountsNoUses,
    NeverAges,
    LeavesLookUpsRunning,
    PlansTwice,
]
