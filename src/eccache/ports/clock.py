"""Clock port: time is injected wherever it decides something."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two times. Any thread may call it."""

    def monotonic(self) -> float:
        """Seconds that never go backwards, for deadlines and durations."""
        ...

    def unix(self) -> float:
        """Seconds since 1970, for what is compared across processes; may jump."""
        ...
