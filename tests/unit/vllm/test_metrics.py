"""Counts on their way to Prometheus and to the log line, through vLLM's own classes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from eccache.adapters.vllm.metrics import COUNTERS, CachePromMetrics, CacheTransferStats
from eccache.ports.lookup import WorkerReport

TYPES: Any = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}


@pytest.fixture
def prometheus() -> Iterator[CachePromMetrics]:
    """The series of two engines; taken down as vLLM does it when it starts another in one process."""
    labels: dict[int, list[object]] = {0: ["m", "0"], 1: ["m", "1"]}
    config: Any = SimpleNamespace(ec_transfer_config=None)
    yield CachePromMetrics(config, TYPES, ["model_name", "engine"], labels)
    from vllm.v1.metrics.prometheus import unregister_vllm_metrics

    unregister_vllm_metrics()


def shown(name: str, **labels: str) -> float | None:
    """What Prometheus would scrape."""
    return REGISTRY.get_sample_value(name, {"model_name": "m", "engine": "0"} | labels)


def test_counters_are_exposed_by_engine_and_reason(prometheus: CachePromMetrics) -> None:
    """Amounts add up in the series of their engine; a reason is a label."""
    prometheus.observe({"hits": 2, "bypassed:salted": 1}, 0)
    prometheus.observe({"hits": 1, "bypassed:salted": 1}, 0)
    prometheus.observe({"hits": 7}, 1)
    assert 3.0 == shown("vllm:eccache_hits_total")
    assert 7.0 == shown("vllm:eccache_hits_total", engine="1")
    assert 2.0 == shown("vllm:eccache_bypassed_total", reason="salted")


@pytest.mark.usefixtures("prometheus")
def test_series_exist_before_anything_is_counted() -> None:
    """A dashboard can tell 0 from absent."""
    for counter in COUNTERS:
        if counter.label is None:
            assert 0.0 == shown(f"vllm:eccache_{counter.name}_total"), counter.name


def test_observations_become_a_histogram_and_levels_a_gauge(prometheus: CachePromMetrics) -> None:
    """Times are observed one by one; of a level the last value counts."""
    prometheus.observe({"lookup_seconds": [0.002, 0.2], "promised_bytes": [10.0, 30.0]})
    assert 2.0 == shown("vllm:eccache_lookup_seconds_count")
    assert 30.0 == shown("vllm:eccache_promised_bytes")


def test_tiers_are_told_apart(prometheus: CachePromMetrics) -> None:
    """Each has counters and a state of its own."""
    prometheus.observe({"tier_hits:lmcache": 2, "tier_up:lmcache": [1.0, 0.0], "tier_up:b": [1.0]})
    assert 2.0 == shown("vllm:eccache_tier_hits_total", tier="lmcache")
    assert (0.0, 1.0) == (
        shown("vllm:eccache_tier_up", tier="lmcache"),
        shown("vllm:eccache_tier_up", tier="b"),
    )


def test_unknown_and_empty_data_are_harmless(prometheus: CachePromMetrics) -> None:
    """Another version's names are left out."""
    prometheus.observe({})
    prometheus.observe({"of_tomorrow": 1, "x:y": 2, "promised_bytes": []})
    assert b"of_tomorrow" not in generate_latest(REGISTRY)


def test_data_survives_the_way_to_the_front_end() -> None:
    """What is sent is text keys, ints and lists of floats, also after numpy or bool values came in."""
    report = WorkerReport({}, {"hits": True, "misses": 0}, {"load_seconds": [1]})
    stats = CacheTransferStats.of(report)
    assert stats is not None
    assert {"hits": 1, "load_seconds": [1.0]} == msgspec.msgpack.decode(
        msgspec.msgpack.encode(stats.data)
    )


def test_nothing_counted_is_no_statistics() -> None:
    """An empty object would be printed and sent."""
    assert CacheTransferStats.of(WorkerReport(counters={"hits": 0})) is None


def test_the_log_line_is_readable() -> None:
    """Several steps add up; a reason stands behind its counter, times become a mean, levels the last."""
    stats = CacheTransferStats(data={"hits": 1, "load_seconds": [0.1], "entries": [7.0]})
    later = CacheTransferStats(
        data={"hits": 2, "misses": 0, "bypassed:salted": 1, "load_seconds": [0.3], "entries": [9.0]}
    )
    later = later.aggregate(CacheTransferStats(data={"tier_up:lmcache": [0.0, 1.0]}))
    total = stats.aggregate(later)
    assert {
        "bypassed salted": 1,
        "entries": 9,
        "hits": 3,
        "load_seconds mean": 0.2,
        "tier_up lmcache": 1,
    } == total.reduce()
    assert not total.is_empty()
    total.reset()
    assert total.is_empty()
