"""Counts, observations and events of one process.

Counters answer "how often", events are for people: an event goes to the host's logging through
structlog, never configures it, and a warning that repeats is held back for a while and counted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from typing import Final

import structlog

from eccache.ports.clock import Clock
from eccache.ports.lookup import WorkerReport
from eccache.ports.telemetry import Level

WARNING_INTERVAL_SECONDS: Final = 60.0
_MAX_WARNINGS_REMEMBERED: Final = 1000
_MAX_OBSERVATIONS: Final = 1000
_LEVELS = {Level.DEBUG: logging.DEBUG, Level.INFO: logging.INFO, Level.WARNING: logging.WARNING}


def _render(_: object, __: str, event_dict: structlog.typing.EventDict) -> str:
    """Render an event as one line: a ready sentence as it stands, else the name and its fields."""
    name = str(event_dict.pop("event"))
    line = event_dict.pop("message", None)
    if line is not None:
        return str(line)
    return " ".join([name, *(f"{key}={value!r}" for key, value in event_dict.items())])


class LocalTelemetry:
    """Implements `ports.telemetry.Telemetry` for one process. Any thread may call it.

    Args:
        clock: for holding warnings back.
        logger_name: the logger, under which a host's configuration finds the events.
    """

    def __init__(self, clock: Clock, logger_name: str = "eccache") -> None:
        self._clock = clock
        self._logger = logging.getLogger(logger_name)
        self._log = structlog.wrap_logger(self._logger, processors=[_render])
        self._lock = threading.RLock()  # a signal's handler may count in the middle of a count
        self._totals: Counter[str] = Counter()
        self._counted = False  # since the last report
        self._taken: Counter[str] = Counter()
        self._observations: dict[str, deque[float]] = {}
        self._warned: dict[str, tuple[float, int]] = {}

    def count(self, name: str, amount: int = 1, *, reason: str | None = None) -> None:
        """Add *amount* to a counter; with a reason also to `name:reason`'s own."""
        with self._lock:
            self._totals[name if reason is None else f"{name}:{reason}"] += amount
            self._counted = self._counted or amount != 0

    def observe(self, name: str, value: float) -> None:
        """Record one observation, kept until `take_report`; the newest thousand of each name."""
        with self._lock:
            values = self._observations.get(name)
            if values is None:
                values = self._observations[name] = deque(maxlen=_MAX_OBSERVATIONS)
            values.append(value)

    def event(self, level: Level, event: str, **fields: object) -> None:
        """Log an event; of equal warnings one a minute, with the number that were held back."""
        if not self._logger.isEnabledFor(_LEVELS[level]):
            return
        if level is Level.WARNING:
            held_back = self._admit(event)
            if held_back is None:
                return
            if held_back:
                fields["held_back"] = held_back
        self._log.log(_LEVELS[level], event, **fields)

    def _admit(self, event: str) -> int | None:
        """Return how many of *event* were held back since the last, or None to hold this one back."""
        now = self._clock.monotonic()
        with self._lock:
            last, held_back = self._warned.get(event, (float("-inf"), 0))
            if now - last < WARNING_INTERVAL_SECONDS:
                self._warned[event] = (last, held_back + 1)
                return None
            if len(self._warned) >= _MAX_WARNINGS_REMEMBERED:
                self._warned.clear()
            self._warned[event] = (now, 0)
            return held_back

    def total(self, name: str) -> int:
        """Return the value of counter *name*, without the amounts counted under a reason."""
        return self._totals[name]

    def totals(self) -> dict[str, int]:
        """Return every counter, by `name` or `name:reason`."""
        with self._lock:
            return dict(self._totals)

    def take_report(self) -> WorkerReport | None:
        """Return what was counted and observed since the last call, without acks; None if nothing.

        That is asked in every step, and nearly always for nothing.
        """
        if not self._counted and not self._observations:
            return None
        with self._lock:
            self._counted = False
            counters = {
                name: total - self._taken[name]
                for name, total in self._totals.items()
                if total != self._taken[name]
            }
            self._taken = Counter(self._totals)
            taken, self._observations = self._observations, {}
        observations = {name: list(values) for name, values in taken.items()}
        return WorkerReport(counters=counters, observations=observations)
