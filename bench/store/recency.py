"""How close sampled eviction comes to the exact order of use.

The trace is Zipf-distributed over entries of mixed sizes and runs on an injected clock, so that what is
measured is the order of eviction and not this machine. The exact order is kept beside it by a dictionary.
"""

from __future__ import annotations

import random
import shutil
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import attrs

from bench.rows import Row
from bench.setting import Setting
from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.system import SystemFiles
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import FreshFrame
from eccache.domain.key import EntryKey
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.clock import ManualClock
from eccache.testing.telemetry import RecordingTelemetry

ACCESSES = 200_000
ENTRIES = 20_000
ZIPF = 0.9
LARGEST_ROWS = 64
WIDTH_NBYTES = 1024
BLOCK_NBYTES = 4096
WITHIN = 0.02


@attrs.frozen
class Trace:
    """Which entry is used when.

    Attributes:
        accesses: Entries by number, in order.
        rows: Each entry's size in units of 1 KiB.
        seconds_between: Time from one access to the next.
    """

    accesses: list[int]
    rows: list[int]
    seconds_between: float

    @classmethod
    def drawn(cls, accesses: int, entries: int, seconds_between: float, seed: int) -> Trace:
        """Draw a trace: the n-th most popular entry is used with a chance in proportion to n ** -0.9."""
        rng = random.Random(seed)
        chances = list(accumulate((number + 1) ** -ZIPF for number in range(entries)))
        return cls(
            rng.choices(range(entries), cum_weights=chances, k=accesses),
            [int(LARGEST_ROWS ** rng.random()) for _ in range(entries)],
            seconds_between,
        )

    def nbytes(self, entry: int) -> int:
        """Return the physical bytes of an entry: a header block, and the payload in whole blocks."""
        payload_nbytes = self.rows[entry] * WIDTH_NBYTES
        return BLOCK_NBYTES - (-payload_nbytes // BLOCK_NBYTES) * BLOCK_NBYTES


def exact_hits(trace: Trace, capacity_nbytes: int) -> int:
    """Return how many accesses hit if always the least recently used entry goes."""
    kept: OrderedDict[int, int] = OrderedDict()
    used_nbytes = hits = 0
    for entry in trace.accesses:
        if entry in kept:
            kept.move_to_end(entry)
            hits += 1
            continue
        used_nbytes += trace.nbytes(entry)
        while used_nbytes > capacity_nbytes:
            used_nbytes -= kept.popitem(last=False)[1]
        kept[entry] = trace.nbytes(entry)
    return hits


def store_hits(trace: Trace, capacity_nbytes: int, folder: Path) -> int:
    """Return how many accesses hit in a real store."""
    clock = ManualClock()
    store = DiskStore(
        str(folder),
        policy=DiskPolicy(capacity_nbytes=capacity_nbytes, free_space_ratio=0.0),
        files=SystemFiles(),
        clock=clock,
        telemetry=RecordingTelemetry(),
        rng=random.Random(0),
    )
    names = random.Random(1)
    refs = [
        EntryRef("0" * 16, EntryKey("model", names.getrandbits(64), "uint8"), bytes(32))
        for _ in trace.rows
    ]
    payload = memoryview(bytes(LARGEST_ROWS * WIDTH_NBYTES))
    hits = 0
    for entry in trace.accesses:
        clock.advance(trace.seconds_between)
        lease = store.get(refs[entry])
        if lease is not None:
            lease.close()
            hits += 1
            continue
        spec = TensorSpec("uint8", (trace.rows[entry], WIDTH_NBYTES))
        store.put(refs[entry], FreshFrame(refs[entry], spec, payload[: spec.nbytes], {}))
    store.close()
    return hits


def rows(setting: Setting) -> Iterator[Row]:
    """Compare hit ratios for caches of several sizes, and for accesses that come faster and slower."""
    accesses, entries = (4_000, 400) if setting.quick else (ACCESSES, ENTRIES)
    for share, seconds_between in ((0.1, 0.1), (0.3, 0.1), (0.1, 0.01)):
        trace = Trace.drawn(accesses, entries, seconds_between, seed=0)
        capacity_nbytes = int(share * sum(map(trace.nbytes, range(entries))))
        setting.progress(f"{accesses:,} accesses, {1 / seconds_between:g} a second")
        folder = setting.folder / "recency"
        ours = store_hits(trace, capacity_nbytes, folder) / accesses
        exact = exact_hits(trace, capacity_nbytes) / accesses
        shutil.rmtree(folder)
        yield Row(
            operation=f"hit ratio, {share:.0%} of {entries:,} entries fit, "
            f"{1 / seconds_between:g} accesses a second",
            target=f">= exact - {WITHIN}",
            measured=ours,
            peer="exact LRU",
            peer_measured=exact,
            ratio=ours / exact,
            met=ours >= exact - WITHIN,
            unit="x",
        )
