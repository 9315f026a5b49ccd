"""One look-up: from an entry in a store to a sealed, verified copy.

The copy is verified, not what it was made from, and only after it was sealed: from then on nobody can
change what was verified. The bytes go from the store's view to the copy in pieces of 16 MiB, each one
system call without the GIL. Smaller pieces would let a busy scheduler's thread hold this one up at each
of them (5 ms, Python's switch interval), and save nothing. `docs/adr/0020` has the measurements.
"""

from __future__ import annotations

import contextlib
from typing import Final

import attrs

from eccache.app.promises.lookup_job import Finding, LookupJob, NoRoom
from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
from eccache.app.verified_read import fault_outcome
from eccache.domain.entry_format import (
    CONTENT_FIELD,
    MIN_FRAME_NBYTES,
    FrameError,
    FrameFault,
    open_verified,
)
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.outcomes import LookupOutcome, RemoveReason
from eccache.ports.clock import Clock
from eccache.ports.shared_copy import SharedCopies, SharedCopy
from eccache.ports.storage import EntryStore, ReadLease
from eccache.ports.telemetry import Level, Telemetry

PIECE_NBYTES: Final = 16 << 20


class _AbandonedError(Exception):
    """Nobody waits for this look-up any more."""


class EntryLookup:
    """Carries one look-up out, on whatever thread calls. Any number of threads may.

    Args:
        store: where entries are.
        copies: makes the copy.
        budget: is charged before memory is taken.
        clock: for `lookup_seconds`, from when it was asked for to the answer.
        telemetry: takes `bytes_read` and what went wrong.
    """

    def __init__(
        self,
        store: EntryStore,
        copies: SharedCopies,
        budget: CopyBudget,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._store = store
        self._copies = copies
        self._budget = budget
        self._clock = clock
        self._telemetry = telemetry

    def __call__(self, job: LookupJob) -> Finding:
        """Return a verified copy of *job*'s entry, or why there is none. Leaves nothing behind then."""
        finding = self._find(job)
        self._telemetry.observe("lookup_seconds", self._clock.monotonic() - job.started)
        return finding

    def _find(self, job: LookupJob) -> Finding:
        try:
            ref = _bound(job)
            lease = None if ref is None else self._store.get(ref, deadline=job.deadline)
            if ref is None or lease is None:
                return LookupOutcome.MISS
            with contextlib.closing(lease):
                return self._copy(job, ref, lease)
        except FrameError as error:
            if not error.fault.is_damage:
                return LookupOutcome.MISS
            self._quarantine(job.ref, error)
            return LookupOutcome.CORRUPT
        except StoreFault as fault:
            self._telemetry.event(Level.WARNING, "lookup.entry.failed", cause=str(fault))
            return fault_outcome(fault)
        except _AbandonedError:
            return LookupOutcome.MISS

    def _copy(self, job: LookupJob, ref: EntryRef, lease: ReadLease) -> PromisedCopy | NoRoom:
        nbytes = lease.nbytes
        if nbytes < MIN_FRAME_NBYTES:
            raise FrameError(FrameFault.TRUNCATED, f"{nbytes} bytes")
        if not self._budget.reserve(nbytes):
            return NoRoom(nbytes)
        with contextlib.ExitStack() as undo:
            undo.callback(self._budget.release, nbytes)
            copy = self._copies.create(nbytes)
            undo.callback(copy.close)
            _fill(copy, lease.view(), job)
            copy.seal()
            header = open_verified(self._copies.map(copy.pid, copy.fd, nbytes), ref)
            undo.pop_all()
        self._telemetry.count("bytes_read", header.spec.nbytes)
        return PromisedCopy(copy, self._budget, header.spec, header.fields.get(CONTENT_FIELD))

    def _quarantine(self, ref: EntryRef, error: FrameError) -> None:
        self._telemetry.event(Level.WARNING, "lookup.entry.corrupt", cause=str(error))
        with contextlib.suppress(StoreFault):
            self._store.remove(ref, RemoveReason.QUARANTINED)


def _bound(job: LookupJob) -> EntryRef | None:
    """Return the entry that is looked for, content included; None if that should be known and is not."""
    if job.content is None:
        return job.ref
    digest = job.content.digest()
    return None if digest is None else attrs.evolve(job.ref, content=digest)


def _fill(copy: SharedCopy, source: memoryview, job: LookupJob) -> None:
    """Copy *source*, which is touched by nothing but system calls: a shortened file can't end the process."""
    for start in range(0, copy.nbytes, PIECE_NBYTES):
        if job.abandoned:
            raise _AbandonedError
        copy.write(source[start : start + PIECE_NBYTES], start)
