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
class _Series:
    """One series as Prometheus shows it (a counter with `_total` behind its name).

    Attributes:
        name: the telemetry's name of it, `PREFIX` before it.
        help: for people.
        label: what is told apart beside the engine: what stands behind the colon in `name:value`.
    """

    name: str
    help: str
    label: str | None = None

    def labels(self, names: list[str]) -> list[str]:
        """Return the names of its labels, after *names* of the engine's."""
        return names if self.label is None else [*names, self.label]


COUNTERS: Final = (
    _Series("hits", "Encoder runs avoided: inputs whose stored output was handed to the workers."),
    _Series("promised", "Look-ups that ended in a verified copy, taken or not."),
    _Series("misses", "Look-ups that found nothing usable."),
    _Series("corrupt", "Look-ups that found a damaged entry, which was then quarantined."),
    _Series("errors", "Look-ups that failed in the store."),
    _Series("timeouts", "Look-ups that were not answered in time."),
    _Series("bypassed", "Inputs neither stored nor looked up, by reason.", label="reason"),
    _Series("deferred", "Requests that had to wait for a look-up."),
    _Series("deadlines", "Requests that stopped waiting for a look-up at its deadline."),
    _Series("unavailable", "Requests given up because nothing could supply an encoder output."),
    _Series("expired", "Verified copies given up because no step took them in time."),
    _Series("loads", "Encoder outputs loaded by a rank instead of computed."),
    _Series("broken_promises", "Promised copies that could not be loaded. Must stay 0."),
    _Series("unacknowledged", "Loads that not every rank acknowledged in time."),
    _Series("puts", "Encoder outputs accepted for storing."),
    _Series("put_refused", "Encoder outputs not accepted: too many bytes were waiting."),
    _Series("stored", "Encoder outputs stored as a new entry."),
    _Series("already_present", "Encoder outputs whose entry was there already."),
    _Series("rejected", "Encoder outputs that the store refuses for good, e.g. above the cap."),
    _Series("failed_puts", "Encoder outputs that could not be stored."),
    _Series("evictions", "Entries evicted by this server to make room."),
    _Series("bytes_read", "Bytes of encoder outputs read and verified."),
    _Series("bytes_loaded", "Bytes of copies loaded by a rank."),
    _Series("bytes_written", "Bytes of entries stored."),
    _Series("tier_hits", "Entries fetched from a tier behind the local store.", label="tier"),
    _Series("tier_misses", "Entries that a tier does not have.", label="tier"),
    _Series("tier_corrupt", "Damaged entries that a tier returned.", label="tier"),
    _Series("tier_errors", "Calls of a tier that failed.", label="tier"),
    _Series("tier_timeouts", "Calls of a tier that were not answered in time.", label="tier"),
    _Series(
        "tier_skipped", "Calls not made because a tier was down or being opened.", label="tier"
    ),
    _Series("tier_stored", "Entries stored in a tier.", label="tier"),
    _Series("copies_left_out", "Copies between tiers not made: too many were waiting."),
    _Series("faults", "Unexpected errors that were absorbed, by place.", label="reason"),
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
    _Series("promised_bytes", "Host memory held by promised copies."),
    _Series("stored_bytes", "Physical bytes in the store, of all servers that share it."),
    _Series("capacity_bytes", "Physical bytes that may be in the store."),
    _Series("entries", "Entries in the store, of all models."),
    _Series(
        "tier_up", "1 while a tier is asked, 0 while its circuit breaker is open.", label="tier"
    ),
)
_LEVELS: Final = frozenset(gauge.name for gauge in GAUGES)


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
            elif name.partition(":")[0] in _LEVELS:
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
                labelnames=counter.labels(labelnames),
            )
            for counter in COUNTERS
        }
        self._labelled = {one.name for one in (*COUNTERS, *GAUGES) if one.label is not None}
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
            gauge.name: self._gauge_cls(
                name=PREFIX + gauge.name,
                documentation=gauge.help,
                multiprocess_mode="mostrecent",
                labelnames=gauge.labels(labelnames),
            )
            for gauge in GAUGES
        }
        # Series exist, as 0, before anything is counted.
        for labels in per_engine_labelvalues.values():
            for name, counter in self._counters.items():
                if name not in self._labelled:
                    counter.labels(*labels)

    def observe(self, transfer_stats_data: Mapping[str, Any], engine_idx: int = 0) -> None:
        """Add what was counted to the series of engine *engine_idx*; unknown names are left out."""
        labels = self.per_engine_labelvalues[engine_idx]
        for key, value in transfer_stats_data.items():
            name, _, told_apart_by = key.partition(":")
            wanted = [*labels, told_apart_by] if name in self._labelled else labels
            if (counter := self._counters.get(name)) is not None:
                counter.labels(*wanted).inc(value)
            elif (histogram := self._histograms.get(name)) is not None:
                for observation in value:
                    histogram.labels(*wanted).observe(observation)
            elif (gauge := self._gauges.get(name)) is not None and value:
                gauge.labels(*wanted).set(value[-1])
