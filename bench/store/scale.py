"""A store of a million entries: what a put costs that has to evict, and how much memory a process needs."""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.contest import Contender, compete
from bench.rows import Row, within
from bench.setting import Setting
from bench.sparse_store import fill
from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.system import SystemClock, SystemFiles
from eccache.domain.outcomes import PutOutcome
from eccache.testing.frames import frame_of, ref_of
from eccache.testing.telemetry import RecordingTelemetry

ENTRIES = 1_000_000
QUICK_ENTRIES = 2_000
PUTS = 300
PUT_SECONDS = 2e-3
MEMORY_NBYTES = 8 << 20


def rows(setting: Setting) -> Iterator[Row]:
    """Fill a store to its cap with very many entries and put some more."""
    entries = QUICK_ENTRIES if setting.quick else ENTRIES
    folder = setting.folder / "scale"
    setting.progress(f"making a store of {entries:,} entries")
    fill(folder, entries, rows=0)
    size = f"{entries:,} entries"
    before_nbytes = _resident_nbytes()
    store = _opened(folder, 1 << 50)
    begin = time.perf_counter()
    store.put(ref_of("the first"), frame_of(ref_of("the first")))
    yield Row(
        operation="count anew, after a restart of the machine or a lost table",
        size=size,
        measured=time.perf_counter() - begin,
        note="by the first put, in the background",
    )
    store = _opened(folder, store.stats().nbytes)
    number = 0

    def put() -> None:
        nonlocal number
        number += 1
        ref = ref_of(f"input {number}")
        if store.put(ref, frame_of(ref)) is not PutOutcome.STORED:
            raise RuntimeError("not stored")

    samples = compete([Contender("put", put, calls=20)], setting.rounds(PUTS // 20), warm_up=1)
    yield within(
        samples, "put", operation="put that evicts, 4 kB", size=size, at_most_seconds=PUT_SECONDS
    )
    if store.stats().evictions < number // 2:
        raise RuntimeError(f"{store.stats().evictions} evictions for {number} puts")
    gc.collect()
    grown_nbytes = _resident_nbytes() - before_nbytes
    yield Row(
        operation="memory that a process needs for it",
        size=size,
        target=f"<= {MEMORY_NBYTES >> 20} MiB",
        measured=grown_nbytes,
        met=grown_nbytes <= MEMORY_NBYTES,
        unit="B",
    )
    shutil.rmtree(folder)


def _opened(folder: Path, capacity_nbytes: int) -> DiskStore:
    return DiskStore(
        str(folder),
        policy=DiskPolicy(capacity_nbytes=capacity_nbytes, free_space_ratio=0.0),
        files=SystemFiles(),
        clock=SystemClock(),
        telemetry=RecordingTelemetry(),
    )


def _resident_nbytes() -> int:
    return int(psutil.Process().memory_info().rss)
