"""When to ask a tier that has failed again."""

from __future__ import annotations

import enum
import threading
from typing import Final

from eccache.ports.clock import Clock

FAILURES_TO_OPEN: Final = 3
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class TierState(enum.Enum):
    """What a tier's breaker lets through. The value is a metric's label."""

    CLOSED = "closed"
    """Everything: the tier works."""
    OPEN = "open"
    """Nothing, until the pause is over."""
    HALF_OPEN = "half_open"
    """One call, whose outcome decides."""


class CircuitBreaker:
    """Counts failures in a row and pauses after some, twice as long each time. Any thread may call it.

    Args:
        clock: measures the pause.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._until: float | None = None
        self._trying = False

    @property
    def state(self) -> TierState:
        """What would be let through now."""
        with self._lock:
            return self._state()

    def admits(self) -> bool:
        """Return whether to make a call now; each True must be answered, by one of the three below."""
        with self._lock:
            state = self._state()
            if state is TierState.HALF_OPEN:
                if self._trying:
                    return False
                self._trying = True
            return state is not TierState.OPEN

    def succeeded(self) -> None:
        """Note that a call went well: everything is let through again."""
        with self._lock:
            self._failures = 0
            self._pause_seconds = FIRST_PAUSE_SECONDS
            self._until = None
            self._trying = False

    def untold(self) -> None:
        """Note that a call said nothing of the tier: another trial may be made."""
        with self._lock:
            self._trying = False

    def failed(self) -> None:
        """Note that a call failed."""
        with self._lock:
            self._failures += 1
            was_trial, self._trying = self._trying, False
            if self._until is not None and not was_trial:
                return  # a straggler from before the pause says nothing new
            if was_trial:
                self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            if was_trial or self._failures >= FAILURES_TO_OPEN:
                self._until = self._clock.monotonic() + self._pause_seconds

    def _state(self) -> TierState:
        if self._until is None:
            return TierState.CLOSED
        return TierState.OPEN if self._clock.monotonic() < self._until else TierState.HALF_OPEN
