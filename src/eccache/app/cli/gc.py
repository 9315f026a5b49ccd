"""`eccache gc`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eccache.app.amounts import shown_bytes
from eccache.app.cli.failure import failures_explained
from eccache.app.cli.output import columns, print_json
from eccache.app.cli.progress import shown_progress
from eccache.app.cli.store_options import OpenedStore, open_store_at, store_options

if TYPE_CHECKING:
    from eccache.ports.maintenance import Amount, CollectReport


def _gib(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        size_gib = float(text)
    except ValueError:
        size_gib = math.nan
    if not 0 < size_gib < math.inf:
        raise click.BadParameter(f"{text!r} is no size; write a number of GiB above 0: 64.")
    return size_gib


@click.command("gc")
@store_options
@click.option(
    "--max-size",
    callback=_gib,
    default=None,
    metavar="GIB",
    help="The cap to keep, in GiB. [default: the configured max_local_disk_size, if there is one]",
)
def command(path: Path | None, max_size: float | None, *, as_json: bool) -> None:
    """Remove leftovers of killed processes, count anew, and bring a store under its cap.

    Servers do all of this by themselves, bit by bit, with every put. This does it at once: after a crash,
    or for a store that no server uses at the moment. Where no cap is configured here, none is kept:
    the default need not be what the servers have.

    Exits with 3 when there is no store, or when it is another user's.
    """
    with failures_explained():
        store = open_store_at(path, max_size_gib=max_size)
        with shown_progress("counting", in_bytes=False) as progress:
            report = store.maintenance.collect(progress=progress)
        if as_json:
            print_json(_document(report, store))
        else:
            _print_for_people(report, store)


def _amount(amount: Amount) -> dict[str, int]:
    return {"count": amount.count, "bytes": amount.nbytes}


def _document(report: CollectReport, store: OpenedStore) -> dict[str, object]:
    return {
        "unfinished": _amount(report.unfinished),
        "quarantined": _amount(report.quarantined),
        "evicted": _amount(report.evicted),
        "directories": report.directories,
        "capacity_bytes": store.capacity_nbytes,
    }


def _print_for_people(report: CollectReport, store: OpenedStore) -> None:
    cap = (
        "(no cap is configured here; name one with --max-size)"
        if store.capacity_nbytes is None
        else f"(cap {shown_bytes(store.capacity_nbytes)})"
    )
    rows = [
        ["unfinished writes", _shown(report.unfinished), "of processes that are gone"],
        ["quarantined", _shown(report.quarantined), "above the bounds of quarantine"],
        ["evicted", _shown(report.evicted), cap],
        ["empty directories", f"{report.directories:,}", ""],
    ]
    click.echo("removed:\n" + columns(rows))


def _shown(amount: Amount) -> str:
    return f"{amount.count:,} ({shown_bytes(amount.nbytes)})"
