"""What was served, computed and bypassed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import attrs

from eccache.adapters.transformers.bypass import Bypass
from eccache.ports.telemetry import Level, Telemetry


@attrs.frozen
class EncoderStats:
    """Counts since an encoder's cache was opened.

    Attributes:
        hits: items served without running the encoder (whole calls where a model's items are not known
            to be independent).
        misses: items for which the encoder ran, and whose output was put into the cache.
        bypassed: calls that went to the model as they stand, by the value of a `Bypass`.
    """

    hits: int
    misses: int
    bypassed: Mapping[str, int]


class Statistics:
    """Counts, and says once for each reason why calls are bypassed. Any thread may call it.

    Args:
        telemetry: told too.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._bypassed: Counter[str] = Counter()

    def served(self, *, hits: int, misses: int) -> None:
        """Count the items of one call."""
        with self._lock:
            self._counts.update(hits=hits, misses=misses)

    def bypassed(self, reason: Bypass, cause: str) -> None:
        """Count a call that was bypassed."""
        self._telemetry.count("bypassed", reason=reason.value)
        with self._lock:
            self._bypassed[reason.value] += 1
            first = self._bypassed[reason.value] == 1
        if first:
            self._telemetry.event(
                Level.INFO, "transformers.call.bypassed", reason=reason.value, cause=cause
            )

    def snapshot(self) -> EncoderStats:
        """Return the counts."""
        with self._lock:
            return EncoderStats(self._counts["hits"], self._counts["misses"], dict(self._bypassed))
