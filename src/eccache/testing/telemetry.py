"""Telemetry that remembers what it was told."""

from __future__ import annotations

import threading
from collections import Counter

import attrs

from eccache.ports.telemetry import Level


@attrs.frozen
class RecordedEvent:
    """One event.

    Attributes:
        level: how much it matters.
        name: `component.subject.outcome`.
        fields: its values.
    """

    level: Level
    name: str
    fields: dict[str, object]


class RecordingTelemetry:
    """Implements `ports.telemetry.Telemetry` for tests. Any thread may call it.

    Attributes:
        counters: amounts by `name` or `name:reason`.
        events: every event, in order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counters: Counter[str] = Counter()
        self.observations: dict[str, list[float]] = {}
        self.events: list[RecordedEvent] = []

    def count(self, name: str, amount: int = 1, *, reason: str | None = None) -> None:
        """Add *amount* to a counter."""
        with self._lock:
            self.counters[name if reason is None else f"{name}:{reason}"] += amount

    def observe(self, name: str, value: float) -> None:
        """Record one observation."""
        with self._lock:
            self.observations.setdefault(name, []).append(value)

    def event(self, level: Level, event: str, **fields: object) -> None:
        """Record one event."""
        with self._lock:
            self.events.append(RecordedEvent(level, event, fields))

    def named(self, event: str) -> list[RecordedEvent]:
        """Return the events of that name, in order."""
        with self._lock:
            return [recorded for recorded in self.events if recorded.name == event]
