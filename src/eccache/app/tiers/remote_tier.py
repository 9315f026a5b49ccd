"""One tier behind the local store: slow, shared, and not to be relied on.

Nothing of it reaches its caller but hits and misses: every call has a deadline and runs on a thread that
may be lost, a circuit breaker stops asking a tier that fails, and a tier that can't be opened is tried
again later.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from eccache.app.bounded_calls import BoundedCalls
from eccache.app.guard import guarded
from eccache.app.tiers.circuit_breaker import CircuitBreaker, TierState
from eccache.domain.entry_format import FrameError, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault, StoreTimeout
from eccache.domain.frame import Frame
from eccache.domain.outcomes import LookupOutcome, PutOutcome, RemoveReason
from eccache.ports.clock import Clock
from eccache.ports.storage import EntryStore
from eccache.ports.telemetry import Level, Telemetry

R = TypeVar("R")
TELLING_SHARE: Final = 0.1
"""Of a call's time limit: who waits for less than that learns nothing of the tier when time runs out."""


class RemoteTier:
    """A store that may be slow, dead or wrong, made safe to ask. Any thread may call it.

    Args:
        name: in counters and events, e.g. `"lmcache"`.
        open_store: makes the store; called at first use, again after a failure, and never twice at once.
        timeout_seconds: for each call.
        clock: for deadlines and pauses.
        telemetry: counts by tier `tier_hits`, `tier_misses`, `tier_errors`, `tier_timeouts`, `tier_corrupt`,
            `tier_stored`, and `tier_skipped`, calls not made since the tier is being opened or its breaker
            is open; observes `tier_up:<name>` when it changes: 1 while the tier is asked, else 0.
    """

    def __init__(
        self,
        name: str,
        open_store: Callable[[], EntryStore],
        *,
        timeout_seconds: float,
        clock: Clock,
        telemetry: Telemetry,
    ) -> None:
        self.name = name
        self._open_store = open_store
        self._timeout_seconds = timeout_seconds
        self._telling_seconds = TELLING_SHARE * timeout_seconds
        self._clock = clock
        self._telemetry = telemetry
        self._breaker = CircuitBreaker(clock)
        self._calls = BoundedCalls(f"eccache-{name}")
        self._opening = threading.Lock()
        self._tried = threading.Event()
        self._store: EntryStore | None = None
        self._closed = False
        self._telling = threading.Lock()
        self._told_up: bool | None = None

    @property
    def state(self) -> TierState:
        """What the breaker lets through now."""
        return self._breaker.state

    def open_in_background(self) -> None:
        """Open the store before it is asked for. A store that takes long to open delays nobody."""

        def opened() -> None:
            guarded(self._telemetry, f"{self.name}.open", self._open_unless_closed, otherwise=None)
            self._tried.set()

        atexit.register(self._wait_for_opening)
        threading.Thread(target=opened, name=f"eccache-{self.name}-open", daemon=True).start()

    def wait_until_tried(self, timeout_seconds: float) -> bool:
        """Wait for `open_in_background`; True once it has opened the store, or failed to."""
        return self._tried.wait(timeout_seconds)

    def fetch(self, ref: EntryRef, *, deadline: float | None = None) -> memoryview | None:
        """Return the whole, verified frame of *ref*, or None.

        Args:
            ref: what to fetch.
            deadline: monotonic seconds; the tier's own limit holds too.
        """
        answers: list[memoryview | None] = self._ask(
            lambda store: [_read(store, ref)], [], deadline
        )
        if not answers:
            return None  # not asked, or no answer: counted as what it is, and not as a miss
        (frame,) = answers
        if frame is None:
            self._count(LookupOutcome.MISS)
            return None
        try:
            open_verified(frame, ref)
        except FrameError as error:
            if error.fault.is_damage:
                self._count(LookupOutcome.CORRUPT)
                self._ask(lambda store: store.remove(ref, RemoveReason.QUARANTINED), None)
            else:
                self._count(LookupOutcome.MISS)
            return None
        self._count(LookupOutcome.HIT)
        return frame

    def put(self, ref: EntryRef, frame: Frame) -> bool:
        """Store *frame*, whose bytes must stay as they are for ever; True if it is there now."""
        outcome = self._ask(lambda store: store.put(ref, frame), None)
        if outcome is PutOutcome.STORED:
            self._telemetry.count("tier_stored", reason=self.name)
        return outcome in (PutOutcome.STORED, PutOutcome.ALREADY_PRESENT)

    def contains(self, ref: EntryRef) -> bool:
        """Return whether something is stored under *ref*'s name, as far as can be told now."""
        return self._ask(lambda store: store.contains(ref), None) is True

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Remove what is stored under *ref*'s name; True if there was something."""
        return self._ask(lambda store: store.remove(ref, reason), None) is True

    def close(self) -> None:
        """Close the store within the time limit. Idempotent."""
        self._closed = True
        self._wait_for_opening()
        atexit.unregister(self._wait_for_opening)
        store, self._store = self._store, None
        if store is not None:
            guarded(
                self._telemetry,
                f"{self.name}.close",
                lambda: self._calls.call(store.close, self._timeout_seconds),
                otherwise=None,
            )
        self._calls.close()

    def _ask(
        self, question: Callable[[EntryStore], R], otherwise: R, deadline: float | None = None
    ) -> R:
        started = self._clock.monotonic()
        left = math.inf if deadline is None else deadline - started
        if left <= 0:  # the caller's time is over, which is no fault of the tier
            self._count(LookupOutcome.TIMEOUT)
            return otherwise
        limit = min(self._timeout_seconds, left)
        if self._closed or self._is_being_opened() or not self._breaker.admits():
            self._telemetry.count("tier_skipped", reason=self.name)
            return otherwise
        try:
            answer = self._calls.call(lambda: question(self._opened()), limit)
        except Exception as fault:  # noqa: BLE001 - the boundary to a tier: any fault is a miss
            waited = self._clock.monotonic() - started
            self._failed(fault, told=waited < limit or limit >= self._telling_seconds)
            return otherwise
        self._breaker.succeeded()
        self._tell_state()
        return answer

    def _is_being_opened(self) -> bool:
        return self._store is None and self._opening.locked()

    def _failed(self, fault: Exception, *, told: bool) -> None:
        timeout = isinstance(fault, StoreTimeout)
        if told or not timeout:
            self._breaker.failed()
        else:
            self._breaker.untold()
        self._tell_state()
        self._count(LookupOutcome.TIMEOUT if timeout else LookupOutcome.ERROR)
        self._telemetry.event(
            Level.WARNING,
            f"{self.name}.call.failed",
            error=type(fault).__name__,
            cause=str(fault)[:500],
            state=self.state.value,
        )

    def _count(self, outcome: LookupOutcome) -> None:
        self._telemetry.count(f"tier_{outcome.value}", reason=self.name)

    def _tell_state(self) -> None:
        with self._telling:
            up = self.state is TierState.CLOSED
            if up is not self._told_up:
                self._told_up = up
                self._telemetry.observe(f"tier_up:{self.name}", float(up))

    def _wait_for_opening(self) -> None:
        """Wait, within the time limit: an interpreter that ends under native code aborts its process."""
        if self._opening.acquire(timeout=self._timeout_seconds):
            self._opening.release()

    def _open_unless_closed(self) -> None:
        try:
            self._opened()
        except StoreFault:
            if not self._closed:
                raise

    def _opened(self) -> EntryStore:
        store = self._store
        if store is not None:
            return store
        if not self._opening.acquire(blocking=False):
            raise StoreFault(f"{self.name} is still being opened")
        try:
            if self._store is None:
                store = self._open_store()
                if self._closed:
                    store.close()
                    raise StoreFault(f"{self.name} was closed while it was opened")
                self._store = store
            return self._store
        finally:
            self._opening.release()


def _read(store: EntryStore, ref: EntryRef) -> memoryview | None:
    lease = store.get(ref)
    if lease is None:
        return None
    try:
        return lease.view()
    finally:
        lease.close()
