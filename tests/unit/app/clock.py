"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Return the time set."""
        return self.now

    def unix(self) -> float:
        """Return the time set."""
        return self.now
