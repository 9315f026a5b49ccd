"""`eccache purge`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eccache.app.amounts import shown_bytes
from eccache.app.cli.failure import Failure, failures_explained
from eccache.app.cli.output import counted, print_json
from eccache.app.cli.progress import shown_progress
from eccache.app.cli.store_options import open_store_at, store_options

if TYPE_CHECKING:
    from eccache.ports.maintenance import Amount, Selection, StoreMaintenance

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|w)")
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def _age(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    match = _AGE.fullmatch(text)
    if not match:
        raise click.BadParameter(f"{text!r} is no age; write a number and s, min, h, d or w: 7d.")
    return float(match[1]) * _SECONDS[match[2]]


@click.command("purge")
@store_options
@click.option(
    "--namespace",
    "fingerprints",
    multiple=True,
    help="Of the namespace with this fingerprint, or its start. May be given several times.",
)
@click.option(
    "--older-than",
    "age_seconds",
    callback=_age,
    metavar="AGE",
    default=None,
    help="Not used for so long: a number and s, min, h, d or w.",
)
@click.option(
    "--format-version",
    type=click.IntRange(min=1),
    default=None,
    help="Of this version of the entry format.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Everything, other format versions included."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    path: Path | None,
    fingerprints: tuple[str, ...],
    age_seconds: float | None,
    format_version: int | None,
    *,
    everything: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove entries by namespace, age or format version, or all of them.

    Entries that meet all that is given are removed; what it comes to is shown first. Safe beside running
    servers: what is removed is a miss to them, and what was read before stays valid.

    Exits with 3 when nothing was removed because you said no, there is no store, or it is another user's.
    """
    from eccache.ports.maintenance import Amount

    with failures_explained():
        criteria = [bool(fingerprints), age_seconds is not None, format_version is not None]
        if everything == any(criteria):
            raise click.UsageError(
                "Say what to remove: --all, or --namespace, --older-than and --format-version in any "
                "combination."
            )
        maintenance = open_store_at(path).maintenance
        selection = _selection(maintenance, fingerprints, age_seconds, format_version)
        purged = Amount()
        if yes or _is_wanted(maintenance.select(selection)):
            with shown_progress("removing", in_bytes=False) as progress:
                purged = maintenance.purge(selection, progress=progress)
        if as_json:
            print_json({"removed": {"count": purged.count, "bytes": purged.nbytes}})
        else:
            click.echo(f"removed {_shown(purged)}")


def _selection(
    maintenance: StoreMaintenance,
    fingerprints: tuple[str, ...],
    age_seconds: float | None,
    format_version: int | None,
) -> Selection:
    from eccache.ports.maintenance import Selection

    return Selection(
        namespaces=_whole(maintenance, fingerprints) if fingerprints else None,
        unused_since_seconds=None if age_seconds is None else time.time() - age_seconds,
        format_version=format_version,
    )


def _whole(maintenance: StoreMaintenance, starts: tuple[str, ...]) -> frozenset[str]:
    """Return the fingerprints that are meant; each start must be that of exactly one."""
    known = [namespace.fingerprint for namespace in maintenance.summary().namespaces]
    found = set()
    for start in starts:
        matching = [fingerprint for fingerprint in known if fingerprint.startswith(start)]
        if len(matching) != 1:
            raise Failure(
                f"{len(matching) or 'no'} namespaces start with {start!r}.",
                f"name one of those that are there: {', '.join(known) or 'none'}.",
            )
        found.update(matching)
    return frozenset(found)


def _is_wanted(amount: Amount) -> bool:
    """Ask whether so much may go; False where there is nothing to ask about."""
    if amount.count == 0:
        click.echo("nothing to remove matches", err=True)
        return False
    try:
        wanted = click.confirm(f"Remove {_shown(amount)}?", err=True)
    except click.Abort as unanswered:
        if not isinstance(unanswered.__context__, EOFError):
            raise
        click.echo(err=True)  # the question's line is not ended
        raise click.UsageError(
            "purge asks before it removes anything, and there is nobody to answer: add --yes."
        ) from unanswered
    if not wanted:
        raise Failure("nothing was removed")
    return True


def _shown(amount: Amount) -> str:
    return f"{counted(amount.count, 'file', 'files')}, {shown_bytes(amount.nbytes)}"
