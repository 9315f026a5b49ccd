"""Progress of long commands, on standard error, where somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from eccache.ports.maintenance import Progress


def _ignored(done: int, total: int) -> None:
    """Show nothing."""


@contextmanager
def shown_progress(title: str, *, in_bytes: bool) -> Iterator[Progress]:
    """Show a bar with rate and time left while the block runs, if standard error is a terminal.

    Args:
        title: what is done.
        in_bytes: whether amounts are bytes.
    """
    if not sys.stderr.isatty():
        yield _ignored
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    amounts: list[ProgressColumn] = (
        [DownloadColumn(binary_units=True), TransferSpeedColumn()]
        if in_bytes
        else [MofNCompleteColumn()]
    )
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        *amounts,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bars:
        task = bars.add_task(title, total=None)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total)

        yield show
