"""What each operation costs in stores of a thousand to a million entries."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator

from bench.contest import Contender, compete
from bench.micro import ours
from bench.rows import Row
from bench.setting import Setting
from bench.sizes import EntrySize
from bench.sparse_store import fill

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
QUICK_COUNTS = (100, 1_000)
PICTURE = EntrySize("0.5 MB", 70, 1)
STORED = 32


def rows(setting: Setting) -> Iterator[Row]:
    """Measure in stores of growing numbers of entries."""
    for count in QUICK_COUNTS if setting.quick else COUNTS:
        setting.progress(f"making a store of {count:,} entries")
        yield from _measured(setting, count)


def _measured(setting: Setting, count: int) -> Iterator[Row]:
    folder = setting.folder / "entries"
    tensor = PICTURE.tensor()
    fill(folder, count)
    with ours.opened(folder) as cache:
        for number in range(STORED):  # the first of these counts anew what is there
            ours.stored(cache, str(number), tensor)
        numbers = itertools.count()

        def read() -> object:
            found = cache.get(str(next(numbers) % STORED))
            if found is None:
                raise RuntimeError("a stored entry was missed")
            return found

        samples = compete(
            [
                Contender("open and close", lambda: ours.opened(folder).close()),
                Contender("get, 0.5 MB", read),
                Contender("contains, hit", lambda: cache.contains("1"), calls=200),
                Contender("contains, miss", lambda: cache.contains("absent"), calls=200),
                Contender(
                    "put to visible, 0.5 MB",
                    lambda: ours.stored(cache, f"new {next(numbers)}", tensor),
                ),
                Contender("stats", cache.stats),
            ],
            setting.rounds(60),
        )
    shutil.rmtree(folder)
    for operation in samples.seconds:
        yield Row(
            operation=operation,
            size=f"{count:,} entries",
            measured=samples.median(operation),
            spread=samples.quartiles(operation),
            axis="entries",
            x=count,
        )
