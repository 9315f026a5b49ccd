"""Is it worth knowing what an entry cost? Policies against LRU, by the encoder's seconds that they save."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.replay.policies import POLICIES, replay
from bench.replay.traces import Trace, chat, zipf
from bench.rows import Row
from bench.setting import Setting

USES = 60_000
INPUTS = 12_000
SEEDS = 5
CAPACITIES = (0.02, 0.05, 0.1, 0.2, 0.4)
KEEP = 1.10


def rows(setting: Setting) -> Iterator[Row]:
    """Replay both traces through every policy, in caches of several sizes; then say what it comes to."""
    uses, inputs, seeds = (3_000, 600, 1) if setting.quick else (USES, INPUTS, SEEDS)
    traces = {
        "zipf": [zipf(uses, inputs, seed) for seed in range(seeds)],
        "chat": [chat(uses, seed) for seed in range(seeds)],
    }
    ratios: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    for name, some in traces.items():
        for capacity in CAPACITIES:
            setting.progress(f"{name}, {capacity:.0%} of the bytes fit")
            saved = _saved(some, capacity)
            lru = statistics.median(saved["LRU"])
            for policy, shares in saved.items():
                pairs = zip(shares, saved["LRU"], strict=True)
                ratios[policy].append(statistics.median(share / base for share, base in pairs))
                yield Row(
                    operation=f"{name}: share of the encoder's seconds saved, {policy}",
                    size=f"{capacity:.0%} of the bytes fit",
                    measured=statistics.median(shares),
                    peer="LRU",
                    peer_measured=lru,
                    ratio=ratios[policy][-1],
                    unit="x",
                    axis="share of the bytes that fits",
                    x=capacity,
                )
    for policy, over in ratios.items():
        if policy != "LRU":
            median = statistics.median(over)
            yield Row(
                operation=f"encoder seconds saved, as a multiple of LRU's: {policy}",
                size="both traces, all sizes",
                target=f">= {KEEP}, to be kept",
                measured=median,
                met=median >= KEEP,
                unit="x",
                spread=(min(over), max(over)),
                note=f"{min(over):.2f} at the worst, {max(over):.2f} at the best",
            )


def _saved(traces: list[Trace], capacity: float) -> dict[str, list[float]]:
    """Return the share of the encoder's seconds that each policy saves of each trace."""
    saved: dict[str, list[float]] = {}
    for trace in traces:
        capacity_nbytes = int(capacity * trace.distinct_nbytes)
        for policy, make in POLICIES.items():
            saved.setdefault(policy, []).append(replay(trace, make(capacity_nbytes)).share_saved)
    return saved
