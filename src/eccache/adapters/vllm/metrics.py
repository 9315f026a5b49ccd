"""Counts on their way to vLLM's `/metrics` and to its periodic log line.

vLLM collects a statistics object in the engine's process, sends its `data` to the front end as
msgpack, and hands it there to the classes below. `data` holds amounts since the last time, under the
telemetry's own names: `hits`, or `bypassed:salted` with a reason. Text keys, ints and lists of floats
only: nothing else survives the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from vllm.distributed.ec_transfer.ec_connector.metrics import (
    ECConnectorPromMetrics,
    ECConnectorStats,
)

from eccache.ports.lookup import WorkerReport

PREFIX: Final = "vllm:eccache_"
"""vLLM takes down metrics of its own prefix only, when a second engine starts in one process."""


@attrs.frozen
class _Counter:
    """One counter as Prometheus shows it (with `_total` behind its name)."""

    name: str
    help: str
    reasons: bool = False


COUNTERS: Final = (
    _Counter("hits", "Encoder runs avoided: inputs whose stored output was handed to the workers."),
    _Counter("promised", "Look-ups that ended in a verified copy, taken or not."),
    _Counter("misses", "Look-ups that found nothing usable."),
    _Counter("corrupt", "Look-ups that found a damaged entry, which was then quarantined."),
    _Counter("errors", "Look-ups that failed in the store."),
    _Counter("timeouts", "Look-ups that were not answered in time."),
    _Counter("bypassed", "Inputs neither stored nor looked up, by reason.", reasons=True),
    _Counter("deferred", "Requests that had to wait for a look-up."),
    _Counter("deadlines", "Requests that stopped waiting for a look-up at its deadline."),
    _Counter("unavailable", "Requests given up because nothing could supply an encoder output."),
    _Counter("expired", "Verified copies given up because no step took them in time."),
    _Counter("loads", "Encoder outputs loaded by a rank instead of computed."),
    _Counter("broken_promises", "Promised copies that could not be loaded. Must stay 0."),
    _Counter("unacknowledged", "Loads that not every rank acknowledged in time."),
    _Counter("puts", "Encoder outputs accepted for storing."),
    _Counter("put_refused", "Encoder outputs not accepted: too many bytes were waiting."),
    _Counter("stored", "Encoder outputs stored as a new entry."),
    _Counter("already_present", "Encoder outputs whose entry was there already."),
    _Counter("rejected", "Encoder outputs that the store refuses for good, e.g. above the cap."),
    _Counter("failed_puts", "Encoder outputs that could not be stored."),
    _Counter("evictions", "Entries evicted by this server to make room."),
    _Counter("bytes_read", "Bytes of encoder outputs read and verified."),
    _Counter("bytes_loaded", "Bytes of copies loaded by a rank."),
    _Counter("bytes_written", "Bytes of entries stored."),
    _Counter("faults", "Unexpected errors that were absorbed, by place.", reasons=True),
)
"""Every counter that is shown. Others stay inside the process."""

SECONDS_BUCKETS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
HISTOGRAMS: Final = (
    ("lookup_seconds", "Time from the start of a look-up to its answer."),
    ("load_seconds", "Time a rank spent on loading the copies of one step."),
)
GAUGES: Final = (
    ("promised_bytes", "Host memory held by promised copies."),
    ("stored_bytes", "Physical bytes in the store, of all servers that share it."),
    ("capacity_bytes", "Physical bytes that may be in the store."),
    ("entries", "Entries in the store, of all models."),
)
_LEVELS: Final = frozenset(name for name, _ in GAUGES)


class CacheTransferStats(ECConnectorStats):
    """Amounts since the last time, as vLLM passes them on."""

    @classmethod
    def of(cls, report: WorkerReport) -> CacheTransferStats | None:
        """Return the statistics of *report*, or None if it counts nothing: vLLM takes any object for some."""
        data: dict[str, Any] = {
            name: int(amount) for name, amount in report.counters.items() if amount
        }
        for name, values in report.observations.items():
            if values:
                data[name] = [float(value) for value in values]
        return cls(data=data) if data else None

    def reset(self) -> None:
        """Forget everything."""
        self.data.clear()

    def aggregate(self, other: ECConnectorStats) -> CacheTransferStats:
        """Add *other* to this; counters and observations alike."""
        for name, value in other.data.items():
            mine = self.data.get(name)
            self.data[name] = value if mine is None else mine + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return what the log line shows: amounts that are not 0, means of times, the last of levels."""
        line: dict[str, int | float] = {}
        for name, value in sorted(self.data.items()):
            shown = name.replace(":", " ")
            if not isinstance(value, list):
                line[shown] = value
            elif name in _LEVELS:
                line[shown] = int(value[-1])
            else:
                line[f"{shown} mean"] = round(sum(value) / len(value), 6)
        return {name: value for name, value in line.items() if value}

    def is_empty(self) -> bool:
        """Return whether nothing was counted."""
        return not self.data


class CachePromMetrics(ECConnectorPromMetrics):
    """The Prometheus series `vllm:eccache_*`, one of each per engine."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            counter.name: self._counter_cls(
                name=PREFIX + counter.name,
                documentation=counter.help,
                labelnames=[*labelnames, "reason"] if counter.reasons else labelnames,
            )
            for counter in COUNTERS
        }
        self._with_reason = {counter.name for counter in COUNTERS if counter.reasons}
        self._histograms = {
            name: self._histogram_cls(
                name=PREFIX + name,
                documentation=text,
                buckets=SECONDS_BUCKETS,
                labelnames=labelnames,
            )
            for name, text in HISTOGRAMS
        }
        self._gauges = {
            name: self._gauge_cls(
                name=PREFIX + name,
                documentation=text,
                multiprocess_mode="mostrecent",
                labelnames=labelnames,
            )
            for name, text in GAUGES
        }
        for (
            labels
        ) in per_engine_labelvalues.values():  # series exist, as 0, before anything is counted
            for name, counter in self._counters.items():
                if name not in self._with_reason:
                    counter.labels(*labels)

    def observe(self, transfer_stats_data: Mapping[str, Any], engine_idx: int = 0) -> None:
        """Add what was counted to the series of engine *engine_idx*; unknown names are left out."""
        labels = self.per_engine_labelvalues[engine_idx]
        for key, value in transfer_stats_data.items():
            name, _, reason = key.partition(":")
            if (counter := self._counters.get(name)) is not None:
                wanted = [*labels, reason] if name in self._with_reason else labels
                counter.labels(*wanted).inc(value)
            elif (histogram := self._histograms.get(name)) is not None:
                for observation in value:
                    histogram.labels(*labels).observe(observation)
            elif (gauge := self._gauges.get(name)) is not None and value:
                gauge.labels(*labels).set(value[-1])
