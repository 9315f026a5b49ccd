"""`eccache verify`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eccache.app.amounts import shown_bytes
from eccache.app.cli.failure import EXIT_FOUND, failures_explained
from eccache.app.cli.output import columns, counted, print_json
from eccache.app.cli.progress import shown_progress
from eccache.app.cli.store_options import open_store_at, store_options

if TYPE_CHECKING:
    from eccache.ports.maintenance import Subset, VerifyReport


def _subset(_: click.Context, __: click.Parameter, text: str | None) -> Subset:
    from eccache.ports.maintenance import Subset

    if text is None:
        return Subset()
    number, _slash, parts = text.partition("/")
    try:
        return Subset(int(number), int(parts))
    except ValueError as wrong:
        raise click.BadParameter(f"{text!r} is no part N/T with 1 <= N <= T, e.g. 1/7.") from wrong


@click.command("verify")
@store_options
@click.option("--repair", is_flag=True, help="Take damaged entries out of sight (quarantine).")
@click.option(
    "--subset",
    metavar="N/T",
    callback=_subset,
    default=None,
    help="Only the Nth of T parts; T runs with N = 1...T read all of the store.",
)
def command(path: Path | None, subset: Subset, *, repair: bool, as_json: bool) -> None:
    """Read every entry and check its digest.

    Safe beside running servers: each verifies what it reads anyway, this finds damage before they do.
    What is evicted or replaced meanwhile is left out. An entry that the system can't read counts as
    damaged and is never removed. Not counted as use: eviction's order stays.

    Exits with 1 when a damaged entry was found, repaired or not, and with 3 when there is no store.
    """
    with failures_explained():
        maintenance = open_store_at(path).maintenance
        begin = time.monotonic()
        with shown_progress("verifying", in_bytes=True) as progress:
            report = maintenance.verify(subset, repair=repair, progress=progress)
        seconds = time.monotonic() - begin
        if as_json:
            print_json(_document(report, subset, seconds))
        else:
            _print_for_people(report, seconds, repair=repair)
        sys.exit(EXIT_FOUND if report.problems else 0)


def _document(report: VerifyReport, subset: Subset, seconds: float) -> dict[str, object]:
    return {
        "entries": report.verified.count,
        "bytes": report.verified.nbytes,
        "seconds": round(seconds, 3),
        "subset": f"{subset.number}/{subset.parts}",
        "damaged": [
            {"path": problem.path, "fault": problem.fault, "repaired": problem.repaired}
            for problem in report.problems
        ],
    }


def _print_for_people(report: VerifyReport, seconds: float, *, repair: bool) -> None:
    if report.problems:
        rows = [
            [problem.path, problem.fault, "repaired" if problem.repaired else ""]
            for problem in report.problems
        ]
        click.echo(columns(rows))
    rate = report.verified.nbytes / seconds if seconds else 0.0
    click.echo(
        f"{counted(report.verified.count, 'entry', 'entries')}, {shown_bytes(report.verified.nbytes)} in "
        f"{seconds:.1f} s ({shown_bytes(rate)}/s): {len(report.problems)} damaged",
        err=True,
    )
    if report.problems and not repair:
        click.echo(
            "Damaged entries are never served: each is a miss. --repair takes them out of sight.",
            err=True,
        )
