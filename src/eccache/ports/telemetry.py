"""Telemetry port: counters, durations and events, without a word on where they go."""

from __future__ import annotations

import enum
from typing import Protocol


class Level(enum.Enum):
    """How much an event matters to an operator."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    """An operator may want to act."""


class Telemetry(Protocol):
    """Where counts and events go. Any thread may call it; nothing here raises or blocks for long."""

    def count(self, name: str, amount: int = 1, *, reason: str | None = None) -> None:
        """Add *amount* to the counter *name*, e.g. `"hits"`, `"bypassed"` with a reason."""
        ...

    def observe(self, name: str, value: float) -> None:
        """Record one observation of *name*, e.g. `"load_seconds"`."""
        ...

    def event(self, level: Level, event: str, **fields: object) -> None:
        """Report an event `component.subject.outcome` with its values; warnings are rate-limited."""
        ...
