"""Replays traces through the engine, the store and all, at a sixteenth of the bytes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

import attrs

from bench.micro.peers import MODEL
from bench.replay.traces import HIDDEN, Trace, chat, zipf
from bench.rows import Row
from bench.setting import Setting

USES = 6_000
INPUTS = 1_500
SCALE = 16
CAPACITIES = (0.05, 0.2, 0.5)


def rows(setting: Setting) -> Iterator[Row]:
    """Replay both traces in caches of several sizes."""
    uses, inputs = (300, 100) if setting.quick else (USES, INPUTS)
    for trace in (zipf(uses, inputs, 0), chat(uses, 0)):
        for capacity in CAPACITIES:
            yield from _replayed(setting, trace, capacity)


def _replayed(setting: Setting, trace: Trace, capacity: float) -> Iterator[Row]:
    """Put what misses, on a clock that the trace drives: recency is what it would be in life."""
    import torch

    import eccache
    from eccache.adapters.disk import DiskPolicy, DiskStore
    from eccache.adapters.system import SystemFiles
    from eccache.testing.clock import ManualClock
    from eccache.testing.telemetry import RecordingTelemetry

    folder = setting.folder / "replay"
    capacity_nbytes = int(capacity * trace.distinct_nbytes / SCALE)
    clock = ManualClock()
    store = DiskStore(
        str(folder),
        policy=DiskPolicy(capacity_nbytes=capacity_nbytes, free_space_ratio=0.0),
        files=SystemFiles(),
        clock=clock,
        telemetry=RecordingTelemetry(),
    )
    width = HIDDEN // SCALE
    longest = max(used.rows for _, used in trace.uses)
    outputs = torch.ones([longest, width], dtype=torch.bfloat16)
    saved = before = 0.0
    config = eccache.CacheConfig(local_disk=str(folder))
    with eccache.open_cache(config, model=MODEL, encoder_dtype="bfloat16", store=store) as cache:
        begin = time.perf_counter()
        for seconds, used in trace.uses:
            clock.advance(seconds - before)
            before = seconds
            name = str(used.number)
            if cache.get(name, num_tokens=used.rows) is not None:
                saved += used.encoder_seconds
            else:
                cache.put(name, outputs[: used.rows], borrow=True)
                cache.flush()
        spent = time.perf_counter() - begin
        stats = cache.stats()
    store.close()
    shutil.rmtree(folder)
    share = f"{len(trace.uses):,} uses, {capacity:.0%} of the bytes fit"
    found = [
        Row(
            operation=f"{trace.name}: hit ratio",
            measured=stats.hits / (stats.hits + stats.misses),
            unit="x",
        ),
        Row(
            operation=f"{trace.name}: bytes read instead of computed",
            measured=stats.bytes_read * SCALE,
            unit="B",
        ),
        Row(
            operation=f"{trace.name}: encoder seconds saved",
            measured=saved,
            peer="without a cache",
            peer_measured=trace.encoder_seconds,
            ratio=saved / trace.encoder_seconds,
            note=f"the engine took {spent:.1f} s, writing included; {stats.evictions} evictions",
        ),
    ]
    for row in found:
        yield attrs.evolve(row, size=share, axis="share of the bytes that fits", x=capacity)
