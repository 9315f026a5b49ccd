"""A model of everything around the promise ledger: requests, an accelerator, a store, workers, time.

The machine plays the serving framework. What it may do to the ledger at any moment is a rule; what must
hold after each of them is an invariant, told in terms of what can be seen from outside.
"""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eccache.app.promises.ledger import LedgerParts, PromiseLedger
from eccache.app.promises.limits import LedgerLimits
from eccache.app.promises.lookup_job import LookupJob, NoRoom
from eccache.app.promises.promised_copy import CopyBudget
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import LookupOutcome
from eccache.ports.lookup import Item, PromisedLoad, StepPlan, WorkerReport
from eccache.testing.clock import ManualClock
from eccache.testing.frames import ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.parts import AnsweredLookups, TrackedCopy

RANKS = 2
LIMITS = LedgerLimits(
    lookup_timeout_seconds=5.0,
    max_deferred_requests=3,
    max_promised_nbytes=10_000,
    max_promised_copies=4,
    promise_ttl_seconds=20.0,
    load_ack_timeout_seconds=60.0,
    expected_poll_seconds=0.5,
)
INPUTS = {f"input {number}": number + 2 for number in range(4)}
"""Rows that every request needs of each input; what is stored may have others."""
SIZES = (1000, 4000, 9000, 11_000)
names = st.sampled_from(sorted(INPUTS))


@attrs.define(eq=False)
class LiveRequest:
    """A request as the framework sees it.

    Attributes:
        items: what it needs.
        asked: what it ever asked for.
        waits_since: when it was first deferred in this round; None if it is not deferred.
    """

    items: tuple[Item, ...]
    asked: set[str] = attrs.field(factory=set)
    waits_since: float | None = None


@attrs.define(eq=False)
class LoadUnderWay:
    """A load as the workers see it.

    Attributes:
        load: the instruction.
        since: when the workers were told.
        left: ranks that have yet to acknowledge.
    """

    load: PromisedLoad
    since: float
    left: int = RANKS


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger; subclass it and override `make_ledger` to see whether it notices a fault."""

    def make_ledger(self, parts: LedgerParts) -> PromiseLedger:
        """Return the ledger under test."""
        return PromiseLedger(parts, limits=LIMITS, ranks=RANKS)

    @initialize(stored=st.sets(names, min_size=2))
    def begin(self, stored: set[str]) -> None:
        """Start with a server that has nothing to do, and some entries."""
        self.clock = ManualClock()
        self.budget = CopyBudget(
            LIMITS.max_promised_nbytes, LIMITS.max_promised_copies, RecordingTelemetry()
        )
        self.lookups = AnsweredLookups(self.budget)
        self.stored = stored
        self.unknown: set[str] = set()
        self.resident: set[str] = set()
        self.requests: dict[str, LiveRequest] = {}
        self.loads: dict[int, LoadUnderWay] = {}
        self.copies: dict[int, tuple[str, int, TrackedCopy]] = {}
        self.promised_now: dict[str, Item] = {}
        self.encoded_now: set[str] = set()
        self.number = 0
        self.ledger = self.make_ledger(
            LedgerParts(
                ref_of=lambda item: ref_of(item.mm_hash, variant=item.variant),
                probe=self.probe,
                lookups=self.lookups,
                budget=self.budget,
                clock=self.clock,
                telemetry=RecordingTelemetry(),
            )
        )

    def probe(self, ref: EntryRef) -> bool | None:
        """Answer as the store would."""
        return None if ref.excerpt in self.unknown else ref.excerpt in self.stored

    # --- the world ------------------------------------------------------------------------------------

    @rule(
        name=names, change=st.sampled_from(["store", "lose", "hide", "hang", "recover", "recover"])
    )
    def change(self, name: str, change: str) -> None:
        """An entry is published, evicted from the store, or can't be told of; all threads hang."""
        if change == "store":
            self.stored.add(name)
        elif change == "lose":
            self.stored.discard(name)
        elif change == "hide":
            self.unknown ^= {name}
        else:
            self.lookups.refuses = change == "hang"

    @rule(seconds=st.sampled_from([0.25, 0.25, 0.25, 0.5, 1.0, 4.0, 20.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes; nothing else happens."""
        self.clock.advance(seconds)

    # --- look-ups -------------------------------------------------------------------------------------

    @precondition(lambda self: self.lookups.jobs)
    @rule(
        data=st.data(),
        size=st.sampled_from([*SIZES, None]),
        other_rows=st.sampled_from([0, 0, 1]),
        fault=st.sampled_from([outcome for outcome in LookupOutcome if outcome.value != "hits"]),
    )
    def answer(
        self, data: st.DataObject, size: int | None, other_rows: int, fault: LookupOutcome
    ) -> None:
        """Some look-up is done, in whatever order: with a copy of some size and rows, or a fault."""
        job = data.draw(st.sampled_from(self.lookups.jobs))
        if size is None:
            self.lookups.answer(job, fault)
        else:
            self.find(job, size, INPUTS[job.mm_hash] + other_rows)

    @rule()
    def answer_all(self) -> None:
        """Every look-up is done, and finds a small copy where there is room."""
        for job in list(self.lookups.jobs):
            self.find(job, SIZES[0], INPUTS[job.mm_hash])

    def find(self, job: LookupJob, size: int, rows: int) -> None:
        """Answer a look-up with a copy, or with what its thread would answer without room."""
        copy = self.lookups.copy(rows=rows, nbytes=size)
        if copy is None:
            self.lookups.answer(job, NoRoom(size))
            return
        tracked = self.lookups.made[-1]
        self.copies[tracked.fd] = (job.mm_hash, rows, tracked)
        self.lookups.answer(job, copy)

    # --- requests -------------------------------------------------------------------------------------

    @rule(
        wanted=st.lists(
            st.tuples(names, st.sampled_from([False, False, True])), min_size=1, max_size=3
        )
    )
    def arrive(self, wanted: list[tuple[str, bool]]) -> None:
        """A request comes in; some of its inputs may still be on their way from a producer."""
        self.number += 1
        items = tuple(Item(name, INPUTS[name], expected) for name, expected in wanted)
        self.requests[f"request {self.number}"] = LiveRequest(items)
        self.ensure(f"request {self.number}")

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), evicted=st.booleans(), answered=st.booleans())
    def ask(self, data: st.DataObject, evicted: bool, answered: bool) -> None:  # noqa: FBT001
        """The framework asks whether a request may go on; it may never be scheduled after all.

        Its inputs may have left the accelerator, and look-ups may be done just now.
        """
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        if evicted:
            self.resident -= {item.mm_hash for item in self.requests[request_id].items}
        self.ensure(request_id)
        if answered:
            self.answer_all()

    @precondition(lambda self: self.requests)
    @rule(
        data=st.data(),
        pause=st.sampled_from([0.0, 0.0, 30.0]),
        memory=st.sampled_from([True, True, True, False]),
    )
    def schedule(self, data: st.DataObject, pause: float, memory: bool) -> None:  # noqa: FBT001
        """A request is asked for, and if it may go on, its inputs are loaded or encoded."""
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        if not self.ensure(request_id):
            return
        needed = [i for i in self.requests[request_id].items if i.mm_hash not in self.resident]
        promised = {item.mm_hash: item for item in needed if self.ledger.is_promised(item.mm_hash)}
        self.clock.advance(pause)
        if not memory:
            return
        for item in {item.mm_hash: item for item in needed}.values():
            self.ledger.allocated(request_id, item, storable=item.mm_hash not in promised)
            self.resident.add(item.mm_hash)
        self.promised_now |= promised
        self.encoded_now |= {item.mm_hash for item in needed} - promised.keys()

    def ensure(self, request_id: str) -> bool:
        """Ask as the framework does, and check the answer."""
        request = self.requests[request_id]
        needed = [item for item in request.items if item.mm_hash not in self.resident]
        request.asked |= {item.mm_hash for item in needed}
        pending = {job.mm_hash for job in self.lookups.jobs if not job.abandoned}
        plainly_absent = all(
            not item.expected
            and item.mm_hash not in self.stored | self.unknown
            and item.mm_hash not in pending
            for item in needed
        )
        answer = self.ledger.ensure(request_id, needed)
        now = self.clock.monotonic()
        if answer:
            request.waits_since = None
        else:
            assert not plainly_absent or self.holds_copy_of(needed), "a miss was deferred"
            request.waits_since = now if request.waits_since is None else request.waits_since
            limit = request.waits_since + LIMITS.lookup_timeout_seconds
            assert now < limit, "it waits past its deadline"
        return answer

    def holds_copy_of(self, items: list[Item]) -> bool:
        """Return whether the ledger had an answer, or waited for room, for one of *items*."""
        return any(
            item.mm_hash in request.asked
            for item in items
            for request in self.requests.values()
            if request.waits_since is not None
        )

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """A request ends or is aborted, wherever it stands."""
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        del self.requests[request_id]
        self.ledger.finished(request_id)

    # --- steps and workers ----------------------------------------------------------------------------

    @rule()
    def step(self) -> None:
        """The step is planned: every True of it has become a load of an open copy of the right rows."""
        plan = self.ledger.take_step()
        self.check(plan)

    def check(self, plan: StepPlan) -> None:
        """Require that the plan is what was promised."""
        assert set(self.promised_now) == {load.mm_hash for load in plan.loads}, "a broken promise"
        permitted = {one.mm_hash for one in plan.saves}
        assert self.encoded_now == permitted, "what is encoded may be saved, and nothing else"
        for load in plan.loads:
            name, rows, copy = self.copies[load.fd]
            assert not copy.closed, "the workers are told to load a closed copy"
            assert (name, rows) == (load.mm_hash, INPUTS[load.mm_hash]), "another input's rows"
            assert load.promise_id not in self.loads
            self.loads[load.promise_id] = LoadUnderWay(load, self.clock.monotonic())
        self.promised_now = {}
        self.encoded_now = set()

    @precondition(lambda self: self.loads)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """One more rank is done with some load; the copy was open until then."""
        promise_id = data.draw(st.sampled_from(sorted(self.loads)))
        self.acknowledge_one(promise_id)

    def acknowledge_one(self, promise_id: int) -> None:
        """Acknowledge a load on one rank, which must have been able to map the copy until now."""
        under_way = self.loads[promise_id]
        in_time = self.clock.monotonic() < under_way.since + LIMITS.load_ack_timeout_seconds
        assert not in_time or not self.copies[under_way.load.fd][2].closed, "closed before loaded"
        under_way.left -= 1
        if not under_way.left:
            del self.loads[promise_id]
        self.ledger.report(WorkerReport(acks={promise_id: 1}))

    # --- what always holds ----------------------------------------------------------------------------

    @invariant()
    def bytes_and_copies_stay_within_their_bounds(self) -> None:
        """Promised memory is bounded, and is exactly what open copies occupy."""
        open_copies = self.lookups.open_copies
        assert sum(copy.nbytes for copy in open_copies) == self.budget.nbytes
        assert self.budget.nbytes <= LIMITS.max_promised_nbytes
        assert len(open_copies) <= LIMITS.max_promised_copies

    @invariant()
    def no_copy_outlives_its_requests_and_their_loads(self) -> None:
        """An open copy is asked for by a live request, being loaded, or not yet taken in."""
        loading = {under_way.load.fd for under_way in self.loads.values()}
        asked = {name for request in self.requests.values() for name in request.asked}
        for copy in self.lookups.open_copies:
            name = self.copies[copy.fd][0]
            assert copy.fd in loading or name in asked or name in self.promised_now, (
                "a copy is left"
            )

    @invariant()
    def what_is_promised_can_be_loaded(self) -> None:
        """At any moment a True stands for an open copy of the rows that every request needs."""
        held = {(name, rows) for name, rows, copy in self.copies.values() if not copy.closed}
        for name, rows in INPUTS.items():
            assert not self.ledger.is_promised(name) or (name, rows) in held

    @invariant()
    def no_look_up_outlives_its_requests(self) -> None:
        """What nobody asks for any more is abandoned."""
        asked = {name for request in self.requests.values() for name in request.asked}
        for job in self.lookups.jobs:
            assert job.abandoned or job.mm_hash in asked

    @invariant()
    def only_so_many_requests_are_deferred(self) -> None:
        """Of those that were told to wait, and whose time is not over."""
        now = self.clock.monotonic()
        waiting = [
            request
            for request in self.requests.values()
            if request.waits_since is not None
            and now < request.waits_since + LIMITS.lookup_timeout_seconds
        ]
        assert len(waiting) <= LIMITS.max_deferred_requests

    def teardown(self) -> None:
        """At the end of everything nothing is left."""
        if not hasattr(self, "ledger"):
            return
        self.check(self.ledger.take_step())
        for request_id in list(self.requests):
            self.ledger.finished(request_id)
        for promise_id in [*self.loads] * RANKS:
            if promise_id in self.loads:
                self.acknowledge_one(promise_id)
        for job in list(self.lookups.jobs):
            self.late(job)
        assert [] == self.lookups.open_copies, "a copy is left at the end"
        assert (0, 0) == (self.budget.nbytes, self.budget.copies)
        self.ledger.close()

    def late(self, job: LookupJob) -> None:
        """Answer a look-up that nobody wants any more, as its thread would in the end."""
        assert job.abandoned
        if (copy := self.lookups.copy(rows=1, nbytes=1000)) is not None:
            self.lookups.answer(job, copy)
