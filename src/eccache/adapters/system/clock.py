"""The operating system's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        return time.monotonic()

    def unix(self) -> float:
        """Seconds since 1970."""
        return time.time()
