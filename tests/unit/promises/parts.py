"""Parts of the scheduler's side for tests: real copies, a real store, and look-ups that a test answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import attrs

from eccache.adapters.memfd import MemfdCopies
from eccache.adapters.memory import MemoryStore
from eccache.adapters.system.mapping import map_private
from eccache.app.promises.lookup_job import Finding, LookupJob
from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
from eccache.domain.entry_ref import EntryRef
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.storage import EntryStore, ReadLease
from eccache.testing.clock import ManualClock
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.wrapped_store import WrappedStore

R = TypeVar("R")
SHORT = 20.0
"""Seconds that a test waits for another thread before it fails."""


def until(probe: Callable[[], R | None]) -> R:
    """Wait for another thread until *probe* answers something, and return that."""
    give_up_at = time.monotonic() + SHORT
    while (answer := probe()) is None:
        assert time.monotonic() < give_up_at, "it never happened"
        os.sched_yield()
    return answer


def memfd_copies() -> MemfdCopies:
    """Return what the connector uses."""
    return MemfdCopies(map_private)


def memory_store() -> MemoryStore:
    """Return the reference store."""
    return MemoryStore(capacity_nbytes=1 << 26, clock=ManualClock())


def ample_budget() -> CopyBudget:
    """Return a budget that nothing in a test exhausts."""
    return CopyBudget(1 << 30, 1 << 10, RecordingTelemetry())


def held_copies() -> int:
    """Return the number of memory files that this process has open."""
    names = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum("eccache-promise" in str(name) for name in names)


def lookup_threads(*, closer: bool = False) -> list[threading.Thread]:
    """Return the look-up threads of this process that live, with the one that closes copies or not."""
    own = [thread for thread in threading.enumerate() if thread.name.startswith("eccache-lookup")]
    return [thread for thread in own if closer or "closer" not in thread.name]


def job_of(ref: EntryRef, *, mm_hash: str = "an input", deadline: float = 2_000.0) -> LookupJob:
    """Return a look-up of *ref*."""
    return LookupJob(mm_hash, ref, deadline=deadline, started=1_000.0)


@attrs.define(eq=False)
class TrackedCopy:
    """A shared copy without memory that knows whether it was closed. Its length may be anything."""

    nbytes: int
    fd: int = 0
    pid: int = 1
    closed: bool = False

    def write(self, data: memoryview, offset: int) -> None:
        """Do nothing."""

    def seal(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Remember."""
        assert not self.closed, "closed twice"
        self.closed = True


class AnsweredLookups:
    """Implements `Lookups`: a look-up is answered when, and as, the test says.

    Attributes:
        budget: what copies are charged to.
        jobs: Look-ups that are under way, abandoned ones included.
        made: Every copy that was ever made.
        refuses: `start` says False.
        closed: `close` was called.
    """

    def __init__(self, budget: CopyBudget) -> None:
        self.budget = budget
        self.jobs: list[LookupJob] = []
        self.made: list[TrackedCopy] = []
        self.started = 0
        self.begun = 0
        self.refuses = False
        self.closed = False
        self._found: dict[LookupJob, Finding] = {}

    def start(self, job: LookupJob) -> bool:
        """Take the job, or refuse."""
        if self.refuses:
            return False
        self.started += 1
        self.jobs.append(job)
        return True

    def begin(self) -> None:
        """Count the calls: a job is under way from `start` on."""
        self.begun += 1

    def findings(self) -> Iterable[tuple[LookupJob, Finding]]:
        """Return what was answered since the last call."""
        found, self._found = self._found, {}
        return found.items()

    def abandon(self, job: LookupJob) -> None:
        """Want it no more; a copy that nobody took is closed."""
        job.abandoned = True
        finding = self._found.pop(job, None)
        if isinstance(finding, PromisedCopy):
            finding.close()

    def dispose(self, copy: PromisedCopy) -> None:
        """Close it at once."""
        copy.close()

    def close(self) -> None:
        """Close what nobody took."""
        self.closed = True
        for job in list(self._found):
            self.abandon(job)

    # --- for the test ---------------------------------------------------------------------------------

    def job(self, mm_hash: str) -> LookupJob:
        """Return the one look-up of *mm_hash* that is under way and wanted."""
        (job,) = [job for job in self.jobs if job.mm_hash == mm_hash and not job.abandoned]
        return job

    def answer(self, job: LookupJob, finding: Finding) -> None:
        """Finish *job* as its thread would: an unwanted copy is closed."""
        self.jobs.remove(job)
        if not job.abandoned and not self.closed:
            self._found[job] = finding
        elif isinstance(finding, PromisedCopy):
            finding.close()

    def copy(self, *, rows: int, nbytes: int = 4096, rank: int = 2) -> PromisedCopy | None:
        """Return a copy as a look-up would make it, or None where the budget has no room."""
        if not self.budget.reserve(nbytes):
            return None
        tracked = TrackedCopy(nbytes, fd=1000 + len(self.made))
        self.made.append(tracked)
        return PromisedCopy(tracked, self.budget, TensorSpec("bfloat16", (rows, *[1] * (rank - 1))))

    def find(self, mm_hash: str, *, rows: int = 4, nbytes: int = 4096) -> TrackedCopy:
        """Answer the look-up of *mm_hash* with a copy."""
        copy = self.copy(rows=rows, nbytes=nbytes)
        assert copy is not None
        self.answer(self.job(mm_hash), copy)
        return self.made[-1]

    @property
    def open_copies(self) -> list[TrackedCopy]:
        """The copies that were not closed."""
        return [copy for copy in self.made if not copy.closed]


class GatedStore(WrappedStore):
    """A store whose `get` hangs until it is let go."""

    def __init__(self, store: EntryStore) -> None:
        super().__init__(store)
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Hang, then pass on."""
        self.entered.release()
        assert self.gate.wait(SHORT)
        return super().get(ref, deadline=deadline)
