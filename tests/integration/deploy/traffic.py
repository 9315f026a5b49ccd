"""Six hours of a server's metrics: the real exporter's names, in a format that Prometheus takes in."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eccache.adapters.vllm.metrics import PREFIX, CachePromMetrics

STEP_SECONDS: Final = 60
STEPS: Final = 360
BEGIN: Final = 1_800_000_000
END: Final = BEGIN + STEPS * STEP_SECONDS
GIB: Final = 1 << 30


def exporter() -> tuple[CollectorRegistry, CachePromMetrics]:
    """The series of one engine, made by eccache's own class in a registry of their own."""
    registry = CollectorRegistry()

    def of(kind: type[Any]) -> Any:  # noqa: ANN401 - a class as vLLM hands it in
        return lambda **arguments: kind(registry=registry, **arguments)

    types: Any = {Counter: of(Counter), Gauge: of(Gauge), Histogram: of(Histogram)}
    config: Any = SimpleNamespace(ec_transfer_config=None)
    metrics = CachePromMetrics(config, types, ["model_name", "engine"], {0: ["org/vlm", "0"]})
    return registry, metrics


def minute(rng: random.Random, number: int) -> dict[str, Any]:
    """What a busy server counts in a minute: warming up, then full, with a fault now and then."""
    warm = min(0.7, number / 200)
    lookups = rng.randrange(40, 80)
    hits = round(lookups * warm)
    misses = lookups - hits
    stored = min(60 * GIB, number * GIB // 3)
    return {
        "promised": hits,
        "hits": hits,
        "misses": misses,
        "corrupt": int(rng.random() < 0.01),
        "errors": int(rng.random() < 0.02),
        "timeouts": int(rng.random() < 0.01),
        "bypassed:client_id": rng.randrange(3),
        "bypassed:salted": rng.randrange(5),
        "deferred": hits,
        "deadlines": int(rng.random() < 0.02),
        "unavailable": 0,
        "expired": int(rng.random() < 0.05),
        "loads": hits,
        "unacknowledged": 0,
        "broken_promises": 0,
        "puts": misses,
        "put_refused": int(rng.random() < 0.05),
        "stored": misses,
        "already_present": rng.randrange(2),
        "rejected": 0,
        "failed_puts": int(rng.random() < 0.02),
        "evictions": misses if stored == 60 * GIB else 0,
        "bytes_read": hits * 19_300_000,
        "bytes_loaded": hits * 19_300_000,
        "bytes_written": misses * 19_300_000,
        "tier_hits:lmcache": hits // 10,
        "tier_misses:lmcache": misses,
        "tier_corrupt:lmcache": int(rng.random() < 0.005),
        "tier_errors:lmcache": int(rng.random() < 0.02),
        "tier_timeouts:lmcache": int(rng.random() < 0.02),
        "tier_skipped:lmcache": 8 if 240 <= number < 250 else 0,
        "tier_stored:lmcache": misses,
        "tier_up:lmcache": [0.0 if 240 <= number < 250 else 1.0],
        "copies_left_out": int(rng.random() < 0.01),
        "faults:vllm.plan": int(number == 250),
        "lookup_seconds": [rng.lognormvariate(-4.5, 0.6) for _ in range(hits)],
        "load_seconds": [rng.lognormvariate(-5.0, 0.4) for _ in range(hits)],
        "promised_bytes": [rng.random() * 0.4 * GIB],
        "stored_bytes": [float(stored)],
        "capacity_bytes": [60.0 * GIB],
        "entries": [float(stored // 19_300_000)],
    }


def openmetrics() -> str:
    """All samples of six hours, in OpenMetrics' text format, as `promtool` takes them in."""
    registry, metrics = exporter()
    rng = random.Random(7)
    lines: dict[str, list[str]] = {}
    for number in range(STEPS):
        metrics.observe(minute(rng, number), 0)
        for family in registry.collect():
            block = lines.setdefault(family.name, [f"# TYPE {family.name} {family.type}"])
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                labels = {**sample.labels, "instance": "host-a:8000", "job": "vllm"}
                shown = ",".join(f'{name}="{value}"' for name, value in labels.items())
                timestamp = BEGIN + (number + 1) * STEP_SECONDS
                block.append(f"{sample.name}{{{shown}}} {sample.value} {timestamp}")
    return "\n".join(line for block in lines.values() for line in block) + "\n# EOF\n"


def exported_names() -> set[str]:
    """Every series name that a server exposes, as a query may use it."""
    registry, metrics = exporter()
    metrics.observe(minute(random.Random(0), STEPS - 1), 0)
    return {
        sample.name
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith(PREFIX) and not sample.name.endswith("_created")
    }
