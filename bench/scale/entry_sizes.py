"""What each operation costs for entries of 0.1 to 150 MB."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import attrs
import xxhash

from bench.contest import Contender, compete
from bench.micro import ours
from bench.micro.promise import Promises
from bench.rows import Row, beside
from bench.setting import Setting
from bench.sizes import HIDDEN, EntrySize

MEGABYTES = (0.1, 0.3, 1, 3, 10, 30, 100, 150)
QUICK_MEGABYTES = (0.1, 1)


def rows(setting: Setting) -> Iterator[Row]:
    """Measure every size beside one pass of the checksum over the same bytes."""
    for megabytes in QUICK_MEGABYTES if setting.quick else MEGABYTES:
        size = EntrySize(f"{megabytes} MB", round(megabytes * 1e6 / (2 * HIDDEN)), 1)
        for row in _measured(setting, size):
            yield attrs.evolve(row, axis="entry, MB", x=megabytes)


def _measured(setting: Setting, size: EntrySize) -> Iterator[Row]:
    from eccache.adapters.torch.memory import bytes_of

    tensor = size.tensor()
    data = bytes_of(tensor)
    folder = setting.folder / "written"
    promises = Promises(setting, size)
    with ours.opened(folder) as cache:

        def remove() -> None:
            for path in ours.entry_files(folder):
                path.unlink()

        held = promises.copy()
        samples = compete(
            [
                Contender("get, page cache warm", lambda: promises.cache.get("id")),
                Contender("put to visible", lambda: ours.stored(cache, "id", tensor), after=remove),
                Contender("promised copy, made and closed", lambda: promises.copy().close()),
                Contender("worker's load of a promised copy", lambda: promises.load(held)),
                Contender("XXH3 pass", lambda: xxhash.xxh3_128_digest(data)),
            ],
            setting.rounds(max(10, min(100, int(4e8 / size.nbytes)))),
        )
        held.close()
    promises.close()
    shutil.rmtree(folder)
    for operation in samples.seconds:
        if operation != "XXH3 pass":
            yield beside(samples, operation, "XXH3 pass", operation=operation, size=size.label)
