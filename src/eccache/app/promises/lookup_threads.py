"""The threads that look entries up for the promise ledger.

A read can hang for ever, and no thread can be interrupted there. So the threads are daemons, and one that
is still at a look-up past its deadline is taken to hang: another takes its place, and should the first
come back, it ends. The number of those that hang is bounded; at the bound look-ups are refused, until one
comes back.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from eccache.app.guard import guarded
from eccache.app.promises.copy_closer import CopyCloser
from eccache.app.promises.lookup_job import Finding, LookupJob
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.domain.outcomes import LookupOutcome
from eccache.ports.clock import Clock
from eccache.ports.telemetry import Level, Telemetry

MAX_HUNG_THREADS: Final = 8
_JOIN_SECONDS: Final = 0.25


@attrs.define(eq=False)
class _Worker:
    """One thread.

    Attributes:
        thread: the thread.
        job: what it is at; None while it waits.
        replaced: it hung, another has its place, and it is to end.
    """

    thread: threading.Thread = attrs.field(init=False)
    job: LookupJob | None = None
    replaced: bool = False


class LookupThreads:
    """Implements `app.lookup_job.Lookups`. Used by one thread, the ledger's.

    Args:
        look_up: carries out one look-up, on these threads; a copy it returns is the caller's.
        threads: how many look-ups run at once. The threads start when they are needed.
        max_hung: how many threads may hang beside these.
        clock: tells which look-ups are past their deadline.
        telemetry: is told of threads that hang.
    """

    def __init__(
        self,
        look_up: Callable[[LookupJob], Finding],
        *,
        threads: int,
        max_hung: int = MAX_HUNG_THREADS,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self._look_up = look_up
        self._wanted_threads = threads
        self._max_hung = max_hung
        self._clock = clock
        self._telemetry = telemetry
        self._closer = CopyCloser()
        self._wake = threading.Condition()
        # All of these under the condition's lock.
        self._queue: deque[LookupJob] = deque()
        self._findings: dict[LookupJob, Finding] = {}
        self._workers: list[_Worker] = []
        self._idle = 0
        self._hung = 0
        self._started = 0
        self._closed = False

    @property
    def hung(self) -> int:
        """Number of threads that hang and were replaced."""
        return self._hung

    @property
    def idle(self) -> int:
        """Number of threads that have nothing to do."""
        return self._idle

    @property
    def undelivered(self) -> int:
        """Number of findings that were not asked for yet."""
        return len(self._findings)

    def start(self, job: LookupJob) -> bool:
        """Queue *job*; False after `close`, or if no thread is left that could take it.

        Threads that wait are not woken: see `begin`.
        """
        with self._wake:
            if self._closed:
                return False
            self._replace_hung()
            self._queue.append(job)
            if self._staffed():
                return True
            self._queue.pop()
            return False

    def begin(self) -> None:
        """Wake threads for what is queued.

        Once the scheduler has made its step and waits for the model, and not while it works: each of its
        system calls would hand Python's lock to a thread, and each thread would wait for it for 5 ms.
        """
        if self._queue:
            with self._wake:
                self._wake.notify(len(self._queue))

    def findings(self) -> Iterable[tuple[LookupJob, Finding]]:
        """Return what was found since the last call. Without a lock where there is nothing."""
        if not self._findings:
            return ()
        with self._wake:
            found, self._findings = self._findings, {}
        return found.items()

    def abandon(self, job: LookupJob) -> None:
        """Want *job* no more; if it hangs, let another thread take over what is queued."""
        with self._wake:
            job.abandoned = True
            finding = self._findings.pop(job, None)
            self._replace_hung()
            if self._queue:
                self._staffed()
        if isinstance(finding, PromisedCopy):
            self.dispose(finding)

    def dispose(self, copy: PromisedCopy) -> None:
        """Close *copy* on a thread of its own."""
        self._closer.dispose(copy)

    def close(self) -> None:
        """End the threads; those in a look-up that hangs end when they can. Idempotent."""
        with self._wake:
            self._closed = True
            found, self._findings = self._findings, {}
            workers, self._workers = self._workers, []
            for worker in workers:
                if worker.job is not None:
                    worker.job.abandoned = True
            self._wake.notify_all()
        for finding in found.values():
            if isinstance(finding, PromisedCopy):
                self.dispose(finding)
        self._closer.close()
        for worker in workers:
            if not self._hangs(worker):
                worker.thread.join(_JOIN_SECONDS)

    # --- under the lock, on the ledger's thread -------------------------------------------------------

    def _staffed(self) -> bool:
        """See to it that a thread will take what is queued; False if all hang and no more may start."""
        if self._idle < len(self._queue) and len(self._workers) < self._wanted_threads:
            self._add_worker()
        return not all(self._hangs(worker) for worker in self._workers)

    def _add_worker(self) -> None:
        worker = _Worker()
        self._started += 1
        worker.thread = threading.Thread(
            target=self._serve, args=(worker,), name=f"eccache-lookup-{self._started}", daemon=True
        )
        try:
            worker.thread.start()
        except RuntimeError as error:  # the system has no more threads
            self._telemetry.event(Level.WARNING, "lookup.thread.refused", cause=str(error))
        else:
            self._workers.append(worker)

    def _replace_hung(self) -> None:
        """Give up threads that are past their deadline, as far as the bound allows."""
        for worker in [worker for worker in self._workers if self._hangs(worker)]:
            if self._hung >= self._max_hung:
                return
            worker.replaced = True
            self._hung += 1
            self._workers.remove(worker)
            self._telemetry.event(Level.WARNING, "lookup.thread.hung", hung=self._hung)

    def _hangs(self, worker: _Worker) -> bool:
        job = worker.job
        return job is not None and self._clock.monotonic() >= job.deadline

    # --- on the threads -------------------------------------------------------------------------------

    def _serve(self, worker: _Worker) -> None:
        absorbed: Finding = LookupOutcome.ERROR
        while (job := self._next(worker)) is not None:
            look_up = functools.partial(self._look_up, job)
            self._deliver(worker, job, guarded(self._telemetry, "lookup", look_up, absorbed))

    def _next(self, worker: _Worker) -> LookupJob | None:
        """Wait for a look-up; None when *worker* is to end."""
        with self._wake:
            while not self._closed and not worker.replaced:
                if not self._queue:
                    self._idle += 1
                    self._wake.wait()
                    self._idle -= 1
                    continue
                job = self._queue.popleft()
                if not job.abandoned:
                    worker.job = job
                    return job
            return None

    def _deliver(self, worker: _Worker, job: LookupJob, finding: Finding) -> None:
        with self._wake:
            worker.job = None
            self._hung -= worker.replaced
            wanted = not (job.abandoned or self._closed)
            if wanted:
                self._findings[job] = finding
        if not wanted and isinstance(finding, PromisedCopy):
            finding.close()
