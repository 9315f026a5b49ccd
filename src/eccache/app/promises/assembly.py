"""Puts the promise ledger together with the threads that serve it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from eccache.app.promises.ledger import LedgerParts, PromiseLedger
from eccache.app.promises.limits import LedgerLimits
from eccache.app.promises.lookup import EntryLookup
from eccache.app.promises.lookup_threads import LookupThreads
from eccache.app.promises.promised_copy import CopyBudget
from eccache.domain.entry_ref import EntryRef
from eccache.ports.clock import Clock
from eccache.ports.lookup import Item
from eccache.ports.shared_copy import SharedCopies
from eccache.ports.storage import EntryStore
from eccache.ports.telemetry import Telemetry


@attrs.frozen(kw_only=True)
class PromiseParts:
    """What the scheduler's side of the cache is made of.

    Attributes:
        store: where entries are; stays open.
        copies: memory that workers can map.
        ref_of: name and identity of an input's entry.
        probe: whether an entry is there; None where that can't be told without waiting. Called on the
            scheduler's thread.
        clock: for deadlines and ages.
        telemetry: takes counts and events.
    """

    store: EntryStore
    copies: SharedCopies
    ref_of: Callable[[Item], EntryRef]
    probe: Callable[[EntryRef], bool | None]
    clock: Clock
    telemetry: Telemetry


def open_promises(
    parts: PromiseParts, *, limits: LedgerLimits, ranks: int, threads: int
) -> PromiseLedger:
    """Return the scheduler's side of the cache, ready for use; the caller closes it.

    Args:
        parts: what it is made of.
        limits: every bound.
        ranks: acknowledgements that each load gets.
        threads: how many look-ups run at once.
    """
    clock, telemetry = parts.clock, parts.telemetry
    budget = CopyBudget(limits.max_promised_nbytes, limits.max_promised_copies, telemetry)
    lookup = EntryLookup(parts.store, parts.copies, budget, clock, telemetry)
    ledger_parts = LedgerParts(
        ref_of=parts.ref_of,
        probe=parts.probe,
        lookups=LookupThreads(lookup, threads=threads, clock=clock, telemetry=telemetry),
        budget=budget,
        clock=clock,
        telemetry=telemetry,
    )
    return PromiseLedger(ledger_parts, limits=limits, ranks=ranks)
