"""How much is measured, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs

from bench.sizes import SIZES, EntrySize


@attrs.frozen(kw_only=True)
class Setting:
    """What every measurement is told.

    Attributes:
        folder: For its files; on the file system that is measured.
        quick: Few repetitions, to see that everything works.
        sizes: Entries to measure.
        progress: Called with one line of text now and then.
    """

    folder: Path
    quick: bool = False
    sizes: tuple[EntrySize, ...] = SIZES
    progress: Callable[[str], None] = print

    def rounds(self, wanted: int) -> int:
        """Return how many samples to take where *wanted* would be right."""
        return min(wanted, 3) if self.quick else wanted

    @property
    def largest(self) -> EntrySize:
        """The largest entry to measure."""
        return max(self.sizes, key=lambda size: size.rows)
