"""A clock that stands still until it is moved."""

from __future__ import annotations


class ManualClock:
    """Implements `ports.clock.Clock`. Any thread may move it.

    Args:
        unix_seconds: what `unix` starts at.
    """

    def __init__(self, unix_seconds: float = 1_800_000_000.0) -> None:
        self._monotonic_seconds = 1_000.0
        self._unix_seconds = unix_seconds

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return self._monotonic_seconds

    def unix(self) -> float:
        """Seconds since 1970."""
        return self._unix_seconds

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass on both."""
        self._monotonic_seconds += seconds
        self._unix_seconds += seconds

    def jump(self, seconds: float) -> None:
        """Set the Unix time forward, or back where *seconds* is negative, while no time passes."""
        self._unix_seconds += seconds
