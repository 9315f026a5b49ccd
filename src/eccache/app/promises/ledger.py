"""The promise ledger: which request may go on, which input is promised, when a copy may go.

A pure state machine. It knows no threads, no files and no serving framework: look-ups are begun and
answered through `Lookups`, time comes from the clock, and everything happens on the one thread of the
caller, the scheduler's. Answers are taken in and time passes in `ensure` and `take_step` alone; beside
these only `finished` and `close` take a promise back.

Rounds: a request that was answered True and asks again starts a new round, in which misses are
forgotten. So a caller asks until it hears True, and later only when something is needed anew.

Counters. `hits` are encoder runs avoided: inputs whose copy was handed to the workers. The others count
what look-ups came to, once per input in each round of each request:

- `promised`: a verified copy, whether or not it was taken afterwards.
- `misses`: nothing there, or not what is needed (another content, shape or element type); expected, and
  it never came.
- `corrupt`, `errors`, `timeouts`: the entry was damaged; the store failed; no answer by the deadline.
- `bypassed` for a reason: `deferral_limit`, `promise_capacity` (no room for a copy), `lookups_hang`.

Beside these `deferred` and `deadlines` count requests, `expired` copies, `unacknowledged` loads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import attrs

from eccache.app.guard import guarded
from eccache.app.promises.claims import Claims
from eccache.app.promises.limits import LedgerLimits
from eccache.app.promises.loads import LoadsInFlight
from eccache.app.promises.lookup_job import Finding, LookupJob, Lookups, NoRoom
from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
from eccache.app.promises.records import Promise, Request
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import LookupOutcome
from eccache.domain.promise import PromiseState
from eccache.ports.clock import Clock
from eccache.ports.lookup import Item, PermittedSave, StepPlan, WorkerReport
from eccache.ports.telemetry import Level, Telemetry

_MISS = LookupOutcome.MISS.value
_NOTHING = StepPlan()


@attrs.frozen(kw_only=True)
class LedgerParts:
    """What a ledger reaches the world through.

    Attributes:
        ref_of: name and identity of an input's entry; its content is added by whoever reads the entry.
        probe: whether an entry is there. False is a miss; None is "can't be told without waiting", and
            so is the answer of a store that may hang. Must not wait.
        lookups: carries look-ups out; closed with the ledger.
        budget: is charged by the look-ups.
        clock: for deadlines and ages.
        telemetry: takes the counters above.
    """

    ref_of: Callable[[Item], EntryRef]
    probe: Callable[[EntryRef], bool | None]
    lookups: Lookups
    budget: CopyBudget
    clock: Clock
    telemetry: Telemetry


class PromiseLedger:
    """Implements `ports.lookup.PromiseLookup`. Used by one thread.

    Args:
        parts: what it reaches the world through.
        limits: every bound.
        ranks: acknowledgements that each load gets.
    """

    def __init__(self, parts: LedgerParts, *, limits: LedgerLimits, ranks: int) -> None:
        self._limits = limits
        self._ref_of = parts.ref_of
        self._probe = parts.probe
        self._lookups = parts.lookups
        self._budget = parts.budget
        self._clock = parts.clock
        self._telemetry = parts.telemetry
        self._claims = Claims(parts.lookups, parts.telemetry)
        self._requests = self._claims.requests
        self._promises = self._claims.promises
        self._ready = self._claims.ready
        self._loads = LoadsInFlight(ranks, limits.load_ack_timeout_seconds, self._claims.release)
        self._deferred: dict[str, Request] = {}  # by deadline, since every wait is equally long
        self._saves: dict[str, Item] = {}
        self._counted: dict[str, tuple[int, int]] = {}  # within one call of `ensure`
        self._closed = False

    # --- the port -------------------------------------------------------------------------------------

    def ensure(self, request_id: str, items: Sequence[Item]) -> bool:
        """Start or continue look-ups for *items*; True once nothing is under way for them."""
        if self._closed:
            return True
        now = self._clock.monotonic()
        self._catch_up(now)
        request = self._requests.get(request_id)
        if request is None:
            request = self._requests[request_id] = Request(request_id)
        elif request.settled:
            request.new_round()
        if self._has_to_queue(request, items):
            return False
        self._counted.clear()
        # All of them in every step: each look-up is begun, and each retry made, as early as can be.
        waiting = [item for item in items if self._must_wait(request, item, now)]
        if waiting:
            return False
        request.settled = True
        self._deferred.pop(request_id, None)
        for mm_hash in list(request.claims):  # what it no longer needs is not looked up for it
            if self._promises[mm_hash].state is PromiseState.PENDING:
                self._claims.unclaim(self._promises[mm_hash], request)
        return True

    def is_promised(self, mm_hash: str) -> bool:
        """Return whether a private, verified copy of *mm_hash* is at hand. One dict access."""
        return mm_hash in self._ready

    def may_be_found(self, request_id: str, mm_hash: str) -> bool:
        """Return whether another round may find what the last one of this request did not."""
        request = self._requests.get(request_id)
        return not self._closed and request is not None and mm_hash not in request.absent

    def allocated(self, request_id: str, item: Item, *, storable: bool) -> None:
        """Turn the promise of *item* into a load, whoever asked for it; else note that it may be saved."""
        copy = self._ready.pop(item.mm_hash, None)
        if copy is None:
            if storable:
                self._saves[item.mm_hash] = item
            return
        promise = self._promises.pop(item.mm_hash)
        promise.state = PromiseState.LOADING
        self._claims.forget(promise)
        if copy.rows != item.num_embeds:  # said is said: the framework has no way back
            self._telemetry.count("errors")
            self._telemetry.event(
                Level.WARNING,
                "ledger.rows.differ",
                request=request_id[:80],
                mm_hash=item.mm_hash[:80],
                rows=copy.rows,
                needed=item.num_embeds,
            )
        self._telemetry.count(LookupOutcome.HIT.value)
        self._loads.begin(item.mm_hash, copy)

    def take_step(self) -> StepPlan:
        """Return what was allocated since the last call, and forget it."""
        now = self._clock.monotonic()
        # What was promised goes out, whatever else may fail: else the engine ends.
        guarded(self._telemetry, "ledger", functools.partial(self._catch_up, now), None)
        loads = self._loads.take_planned(now)
        saves, self._saves = self._saves, {}
        permissions = tuple(filter(None, map(_permission, saves.values())))
        self._lookups.begin()
        return StepPlan(loads, permissions) if loads or permissions else _NOTHING

    def report(self, report: WorkerReport) -> None:
        """Take in what the workers did; a copy that every rank has acknowledged is closed."""
        for promise_id, ranks in report.acks.items():
            self._loads.acknowledge(promise_id, ranks)

    def finished(self, request_id: str) -> None:
        """Forget a request, wherever it stands."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        self._deferred.pop(request_id, None)
        for mm_hash in list(request.claims):
            self._claims.unclaim(self._promises[mm_hash], request)

    def close(self) -> None:
        """Close every copy and end every thread that can be ended. Idempotent."""
        self._closed = True
        for promise in list(self._promises.values()):
            self._claims.end(promise)
        self._loads.close()
        self._lookups.close()

    def _has_to_queue(self, request: Request, items: Sequence[Item]) -> bool:
        """Return whether *request* must wait, and may not be deferred yet: others come first."""
        return (
            len(self._deferred) >= self._limits.max_deferred_requests > 0
            and request.request_id not in self._deferred
            and any(item.required and item.mm_hash not in self._ready for item in items)
        )

    # --- one item of one request ----------------------------------------------------------------------

    def _must_wait(self, request: Request, item: Item, now: float) -> bool:
        """Start or continue the look-up of *item*; False once its outcome is known to *request*."""
        if item.mm_hash in request.missed:
            return False
        promise = self._promises.get(item.mm_hash) or self._still_loading(item.mm_hash, now)
        if promise is None:
            self._look_up(request, item, now)
        elif promise.state is PromiseState.READY:
            if self._ready[item.mm_hash].serves(item):
                self._claims.claim(promise, request, item)
            else:
                self._claims.miss(promise, request, _MISS)
            return False
        elif self._may_wait(request, now):
            self._claims.claim(promise, request, item)
            self._continue(promise, request, now)
        return item.mm_hash in request.claims

    def _still_loading(self, mm_hash: str, now: float) -> Promise | None:
        """Promise again what the workers have yet to load: it left the accelerator, its copy is here."""
        copy = self._loads.copy_of(mm_hash)
        if copy is None:
            return None
        promise = self._promises[mm_hash] = Promise(mm_hash)
        self._make_ready(promise, copy, now)
        return promise

    def _look_up(self, request: Request, item: Item, now: float) -> None:
        """Begin to look for *item*, of which nothing is known."""
        ref = self._ref_of(item)
        absent = self._probe(ref) is False
        promise = Promise(item.mm_hash)
        if absent and not item.expected:
            self._claims.miss(promise, request, _MISS)
        elif self._may_wait(request, now):
            self._promises[item.mm_hash] = promise
            self._claims.claim(promise, request, item)
            if absent:
                promise.retry_at = now + self._limits.expected_poll_seconds
            else:
                self._start(promise, request, ref, now)

    def _continue(self, promise: Promise, request: Request, now: float) -> None:
        """Look again, if it is time to, for what had no room or was still on its way."""
        if promise.job is not None:
            return
        if promise.wants_nbytes:
            self._turn_away_what_cannot_fit(promise)
            if promise.claims and self._budget.has_room(promise.wants_nbytes):
                self._start(promise, request, self._ref_of(promise.claims[request.request_id]), now)
        elif now >= promise.retry_at:
            ref = self._ref_of(promise.claims[request.request_id])
            if self._probe(ref) is False:
                promise.retry_at = now + self._limits.expected_poll_seconds
            else:
                self._start(promise, request, ref, now)

    def _may_wait(self, request: Request, now: float) -> bool:
        """Return whether *request* may be deferred; it then counts as such, from now to its deadline."""
        if request.request_id in self._deferred:
            return True
        if request.deadline < math.inf:  # its time is over, and this item came up only now
            self._telemetry.count(LookupOutcome.TIMEOUT.value)
            return False
        if len(self._deferred) >= self._limits.max_deferred_requests:
            # Not remembered as a miss: whenever it asks again, there may be room.
            self._telemetry.count("bypassed", reason="deferral_limit")
            return False
        request.deadline = now + self._limits.lookup_timeout_seconds
        self._deferred[request.request_id] = request
        self._telemetry.count("deferred")
        return True

    def _start(self, promise: Promise, request: Request, ref: EntryRef, now: float) -> None:
        job = LookupJob(
            promise.mm_hash,
            ref,
            deadline=request.deadline,
            started=now,
            content=promise.claims[request.request_id].content,
        )
        promise.wants_nbytes = 0
        if self._lookups.start(job):
            promise.job = job
        else:
            self._claims.miss_all(promise, "bypassed", reason="lookups_hang")

    # --- what happens meanwhile -----------------------------------------------------------------------

    def _catch_up(self, now: float) -> None:
        """Take in what was found, and let time pass."""
        for job, finding in self._lookups.findings():
            promise = self._promises[job.mm_hash]
            promise.job = None
            self._conclude(promise, finding, now)
        while self._deferred:
            request = next(iter(self._deferred.values()))
            if now < request.deadline:
                break
            self._give_up_waiting(request)
        while self._ready:
            promise = self._promises[next(iter(self._ready))]
            if now < promise.gives_up_at:
                break
            self._telemetry.count("expired")
            self._claims.end(promise)
        if expired := self._loads.expire(now):
            self._telemetry.count("unacknowledged", expired)
            self._telemetry.event(Level.WARNING, "ledger.load.unacknowledged", loads=expired)

    def _conclude(self, promise: Promise, finding: Finding, now: float) -> None:
        """Take in the answer to *promise*'s look-up."""
        claims = [(self._requests[request_id], item) for request_id, item in promise.claims.items()]
        if isinstance(finding, PromisedCopy):
            self._make_ready(promise, finding, now)
            for request, item in claims:
                if finding.serves(item):
                    self._telemetry.count("promised")
                else:
                    self._claims.miss(promise, request, _MISS)
        elif isinstance(finding, NoRoom):
            promise.wants_nbytes = finding.nbytes  # looked at when somebody asks again
        elif finding is LookupOutcome.MISS:
            promise.retry_at = now + self._limits.expected_poll_seconds
            for request, item in claims:
                if not item.expected:
                    self._claims.miss(promise, request, _MISS)
        else:
            self._claims.miss_all(promise, finding.value)

    def _make_ready(self, promise: Promise, copy: PromisedCopy, now: float) -> None:
        copy.users += 1
        promise.state = PromiseState.READY
        promise.gives_up_at = now + self._limits.promise_ttl_seconds
        self._ready[promise.mm_hash] = copy

    def _turn_away_what_cannot_fit(self, promise: Promise) -> None:
        """Let those go on whose own copies leave no room for this one: waiting would change nothing."""
        for request_id in list(promise.claims):
            request = self._requests[request_id]
            nbytes, copies = self._own_copies(request)
            if not self._budget.could_hold(promise.wants_nbytes + nbytes, 1 + copies):
                self._claims.miss(promise, request, "bypassed", reason="promise_capacity")

    def _own_copies(self, request: Request) -> tuple[int, int]:
        """Return bytes and number of the copies that *request* holds; counted once for all of its inputs."""
        counted = self._counted.get(request.request_id)
        if counted is None:
            own = [self._ready[key].nbytes for key in request.claims if key in self._ready]
            counted = self._counted[request.request_id] = (sum(own), len(own))
        return counted

    def _give_up_waiting(self, request: Request) -> None:
        """Settle everything that *request* still waits for: its time is over."""
        del self._deferred[request.request_id]
        self._telemetry.count("deadlines")
        starved = False
        for mm_hash in list(request.claims):
            promise = self._promises[mm_hash]
            if promise.state is PromiseState.READY:
                continue
            if promise.job is not None:
                self._claims.miss(promise, request, LookupOutcome.TIMEOUT.value)
            elif promise.wants_nbytes:
                starved |= promise.claims[request.request_id].required
                self._claims.miss(promise, request, "bypassed", reason="promise_capacity")
            else:
                self._claims.miss(promise, request, _MISS)
                if promise.retry_at < request.deadline - self._limits.lookup_timeout_seconds / 2:
                    request.absent.discard(mm_hash)  # nobody has looked of late
        if (
            starved
        ):  # it can't go on with a part, and others may wait for just the room that it holds
            for mm_hash in list(request.claims):
                self._claims.unclaim(self._promises[mm_hash], request)


def _permission(item: Item) -> PermittedSave | None:
    """Return what a worker needs to know to save *item*; None if its content should be known and is not.

    Waits for the content's digest: the worker can't take it, and the step runs the encoder for the same
    input, which takes many times as long.
    """
    if item.content is None:
        return PermittedSave(item.mm_hash, item.variant)
    digest = item.content.digest()
    return None if digest is None else PermittedSave(item.mm_hash, item.variant, digest)
