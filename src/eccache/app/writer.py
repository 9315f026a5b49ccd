"""The background writer: accepted puts become entries while the caller goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

IDLE_SECONDS: Final = 5.0


class BackgroundWriter:
    """Runs jobs on daemon threads, in the order they came. Any thread may call it.

    The bytes that wait are bounded by whoever submits (the allocator's budget), not here.

    Args:
        threads: how many run jobs at once.
        on_idle: called by a thread that has had nothing to do for a while, e.g. to give memory back.
    """

    def __init__(self, threads: int, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._jobs: queue.SimpleQueue[Callable[[], bool] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._submitted = 0
        self._finished = 0
        self._failed = 0
        self._failed_reported = 0
        self._wanted_threads = threads
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, job: Callable[[], bool]) -> bool:
        """Queue *job*, which says whether it went well and never raises. Threads start with the first.

        Returns:
            False if nothing will run it: after `close`, or where the system allows no thread.
        """
        with self._changed:
            if self._closed or not self._has_thread():
                return False
            self._submitted += 1
            self._jobs.put(job)
        return True

    @property
    def pending(self) -> int:
        """Number of jobs that have not finished."""
        return self._submitted - self._finished

    def flush(self, timeout_seconds: float | None) -> bool:
        """Wait until nothing is pending. False if time ran out, or a job failed since the last flush."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.pending == 0, timeout_seconds)
            failed, self._failed_reported = self._failed - self._failed_reported, self._failed
        return done and failed == 0

    def close(self, stall_seconds: float) -> bool:
        """Wait for pending jobs for as long as they make progress, then end the threads.

        Returns:
            False if no job finished for *stall_seconds* while some were pending: a write hangs, and
            its thread is left behind.
        """
        with self._changed:
            self._closed = True
            while self.pending and self._progressed(stall_seconds):
                pass
            drained = not self.pending
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        if drained:
            for thread in threads:
                thread.join(stall_seconds)
        return drained

    def _progressed(self, stall_seconds: float) -> bool:
        """Wait for a job to finish; False if none does. The condition is held."""
        before = self._finished
        return self._changed.wait_for(lambda: self._finished != before, stall_seconds)

    def _has_thread(self) -> bool:
        """Start another thread, if one is wanted; True if any runs. The condition is held."""
        if len(self._threads) < self._wanted_threads:
            name = f"eccache-writer-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the limit of processes, or the interpreter is ending
                return bool(self._threads)
            self._threads.append(thread)
        return True

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self._on_idle()
                continue
            if job is None:
                return
            well = job()
            del job  # or what it holds, perhaps 130 MB, would be kept until the next one comes
            with self._changed:
                self._finished += 1
                self._failed += not well
                self._changed.notify_all()
