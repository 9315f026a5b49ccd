"""Opening a store, with nothing in it and with very many entries."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from bench.contest import Contender, compete
from bench.micro import ours, peers
from bench.rows import Row, beside, within
from bench.setting import Setting
from bench.sparse_store import fill

ENTRIES = 1_000_000
QUICK_ENTRIES = 2_000


def rows(setting: Setting) -> Iterator[Row]:
    """Measure how long a process waits before it can use the cache."""
    yield from _empty(setting)
    yield from _full(setting)


def _empty(setting: Setting) -> Iterator[Row]:
    folder = setting.folder / "empty"

    def remove(path: Path = folder) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def open_and_close() -> None:
        ours.opened(folder).close()

    def open_lmcache() -> None:
        with peers.lmcache_engine(1.0):
            pass

    open_and_close()
    samples = compete(
        [
            Contender("open", open_and_close, before=remove),
            Contender("LMCache, 1 GiB", open_lmcache),
        ],
        setting.rounds(12),
        warm_up=1,
    )
    name = "open a store and close it, empty"
    yield within(samples, "open", operation=name, at_most_seconds=5e-3)
    yield beside(samples, "open", "LMCache, 1 GiB", operation=name)


def _full(setting: Setting) -> Iterator[Row]:
    entries = QUICK_ENTRIES if setting.quick else ENTRIES
    folder = setting.folder / "full"
    setting.progress(f"making a store of {entries:,} entries")
    begin = time.perf_counter()
    fill(folder, entries)
    setting.progress(f"made in {time.perf_counter() - begin:.0f} s")
    samples = compete(
        [Contender("open", lambda: ours.opened(folder).close())], setting.rounds(30), warm_up=1
    )
    shutil.rmtree(folder)
    yield within(
        samples,
        "open",
        operation="open a store and close it",
        size=f"{entries:,} entries",
        at_most_seconds=50e-3,
    )
