"""A ledger for tests, and everything around it that a test moves."""

from __future__ import annotations

import attrs

from eccache.app.promises.ledger import LedgerParts, PromiseLedger
from eccache.app.promises.limits import LedgerLimits
from eccache.app.promises.lookup_job import LookupJob, NoRoom
from eccache.app.promises.promised_copy import CopyBudget
from eccache.domain.entry_ref import EntryRef
from eccache.ports.lookup import Item, WorkerReport
from eccache.testing.clock import ManualClock
from eccache.testing.frames import ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.parts import AnsweredLookups

LIMITS = LedgerLimits(
    lookup_timeout_seconds=5.0,
    max_deferred_requests=4,
    max_promised_nbytes=100_000,
    max_promised_copies=8,
    promise_ttl_seconds=60.0,
    load_ack_timeout_seconds=600.0,
    expected_poll_seconds=0.5,
)
A, B = Item("a", 4), Item("b", 4)
A_EXPECTED = Item("a", 4, expected=True)


class Ledger:
    """A ledger, and everything around it that a test moves. Entries are there unless `absent`."""

    def __init__(
        self, *, ranks: int = 1, max_deferred_requests: int = 4, max_promised_copies: int = 8
    ) -> None:
        bounds = attrs.evolve(
            LIMITS,
            max_deferred_requests=max_deferred_requests,
            max_promised_copies=max_promised_copies,
        )
        self.clock = ManualClock()
        self.telemetry = RecordingTelemetry()
        self.budget = CopyBudget(
            bounds.max_promised_nbytes, bounds.max_promised_copies, self.telemetry
        )
        self.lookups = AnsweredLookups(self.budget)
        self.absent: set[str] = set()
        self.unknown: set[str] = set()
        self.probes = 0
        parts = LedgerParts(
            ref_of=lambda item: ref_of(item.mm_hash, variant=item.variant),
            probe=self._probe,
            lookups=self.lookups,
            budget=self.budget,
            clock=self.clock,
            telemetry=self.telemetry,
        )
        self.port = PromiseLedger(parts, limits=bounds, ranks=ranks)

    def _probe(self, ref: EntryRef) -> bool | None:
        self.probes += 1
        if ref.excerpt in self.unknown:
            return None
        return ref.excerpt not in self.absent

    def count(self, name: str) -> int:
        """Return a counter."""
        return self.telemetry.counters[name]

    def promise(self, request_id: str, *items: Item) -> None:
        """Bring *items* of a request to READY."""
        assert not self.port.ensure(request_id, items)
        for item in items:
            self.lookups.find(item.mm_hash, rows=item.num_embeds)
        assert self.port.ensure(request_id, items)

    def load(self, request_id: str, item: Item) -> int:
        """Turn the promise of *item* into a load, and return its id."""
        assert self.port.is_promised(item.mm_hash)
        self.port.allocated(request_id, item, storable=False)
        (load,) = self.port.take_step().loads
        return load.promise_id

    def ack(self, promise_id: int, ranks: int = 1) -> None:
        """Acknowledge a load."""
        self.port.report(WorkerReport(acks={promise_id: ranks}))

    def expect_nothing_left(self) -> None:
        """Require that no copy is held."""
        assert [] == self.lookups.open_copies
        assert (0, 0) == (self.budget.nbytes, self.budget.copies)

    def no_room(self, mm_hash: str, nbytes: int) -> LookupJob:
        """Answer the look-up of *mm_hash* as its thread does when the budget is exhausted."""
        job = self.lookups.job(mm_hash)
        self.lookups.answer(job, NoRoom(nbytes))
        return job
