"""What a store holds, told to telemetry at intervals.

Asking a store is cheap, and a file system that hangs makes it wait; so it is asked on a thread of its own,
which may be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from eccache.ports.storage import StoreStats
from eccache.ports.telemetry import Telemetry

INTERVAL_SECONDS: Final = 15.0


class StoreLevels:
    """Observes `stored_bytes`, `capacity_bytes` and `entries` of one store until closed.

    Args:
        stats: asks the store.
        telemetry: takes the levels.
        interval_seconds: between two looks.
    """

    def __init__(
        self,
        stats: Callable[[], StoreStats],
        telemetry: Telemetry,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._stats = stats
        self._telemetry = telemetry
        self._interval_seconds = interval_seconds
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="eccache-levels", daemon=True).start()

    def close(self) -> None:
        """Observe nothing more. Waits for nothing; idempotent."""
        self._closed.set()

    def _run(self) -> None:
        while True:
            found = self._stats()
            if self._closed.is_set():
                return
            self._telemetry.observe("stored_bytes", float(found.nbytes))
            self._telemetry.observe("entries", float(found.entries))
            if found.capacity_nbytes is not None:
                self._telemetry.observe("capacity_bytes", float(found.capacity_nbytes))
            if self._closed.wait(self._interval_seconds):
                return
