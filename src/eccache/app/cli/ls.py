"""`eccache ls`."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eccache.app.amounts import shown_bytes
from eccache.app.cli.failure import failures_explained
from eccache.app.cli.output import columns, counted, iso_time, print_json, shown_time
from eccache.app.cli.store_options import open_store_at, store_options

if TYPE_CHECKING:
    from eccache.ports.maintenance import StoredEntry

_KEYS: dict[str, tuple[Callable[[StoredEntry], Any], bool]] = {
    "used": (lambda entry: entry.last_used_seconds, True),
    "age": (lambda entry: entry.created_seconds or 0.0, True),
    "size": (lambda entry: entry.nbytes, True),
    "model": (lambda entry: (entry.model, entry.name), False),
    "dtype": (lambda entry: (entry.dtype, entry.name), False),
    "shape": (lambda entry: entry.shape, True),
    "name": (lambda entry: entry.name, False),
}
"""What to sort by: the key, and whether the largest comes first."""

_IN_HEADER = frozenset({"age", "dtype", "shape"})
"""What only a header says, so that each must be read before sorting."""

_ID_CHARACTERS = 16


@click.command("ls")
@store_options
@click.option(
    "--sort",
    type=click.Choice(list(_KEYS)),
    default="used",
    show_default=True,
    help="What to sort by: latest use, age, size and shape with the largest first.",
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--limit", type=click.IntRange(min=1), default=None, help="Only the first so many.")
@click.option(
    "--namespace", "fingerprint", default=None, help="Only of the namespace that starts so."
)
def command(
    path: Path | None,
    sort: str,
    limit: int | None,
    fingerprint: str | None,
    *,
    reverse: bool,
    as_json: bool,
) -> None:
    """List entries: model, dtype, shape, age, last use, size.

    Reads the first block of each entry that is shown (to sort by age, dtype or shape, of each entry), and
    verifies nothing. With --limit, memory is bounded whatever the number of entries. An entry whose
    header can't be read is marked with a `!`.

    Exits with 3 when there is no store.
    """
    with failures_explained():
        maintenance = open_store_at(path).maintenance
        entries = (
            entry
            for entry in maintenance.entries()
            if fingerprint is None or entry.namespace.startswith(fingerprint)
        )
        if sort in _IN_HEADER:
            found = _sorted(map(maintenance.described, entries), sort, limit, reverse=reverse)
        else:
            chosen = _sorted(entries, sort, limit, reverse=reverse)
            found = [maintenance.described(entry) for entry in chosen]
        if as_json:
            print_json([_document(entry) for entry in found])
        else:
            _print_for_people(found)


def _sorted(
    entries: Iterable[StoredEntry], sort: str, limit: int | None, *, reverse: bool
) -> list[StoredEntry]:
    key, largest_first = _KEYS[sort]
    descending = largest_first != reverse
    if limit is None:
        return sorted(entries, key=key, reverse=descending)
    choose = heapq.nlargest if descending else heapq.nsmallest
    return choose(limit, entries, key=key)


def _document(entry: StoredEntry) -> dict[str, object]:
    return {
        "model": entry.model,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "bytes": entry.nbytes,
        "created": iso_time(entry.created_seconds),
        "last_used": iso_time(entry.last_used_seconds),
        "mm_hash": entry.mm_hash,
        "namespace": entry.namespace,
        "name": entry.name,
        "path": entry.path,
        "fault": entry.fault or None,
    }


def _print_for_people(entries: list[StoredEntry]) -> None:
    now = time.time()
    heading = ["model", "dtype", "shape", "age", "last used", "size", "mm_hash", "namespace"]
    rows = [
        [
            entry.model or entry.name,
            entry.dtype or "!",
            "x".join(map(str, entry.shape)) or ("!" if entry.fault else "scalar"),
            shown_time(entry.created_seconds, now),
            shown_time(entry.last_used_seconds, now),
            shown_bytes(entry.nbytes),
            _shortened(entry.mm_hash),
            entry.namespace,
        ]
        for entry in entries
    ]
    if rows:
        click.echo(columns([heading, *rows], right=frozenset({3, 4, 5})))
    total_nbytes = sum(entry.nbytes for entry in entries)
    click.echo(
        f"{counted(len(entries), 'entry', 'entries')}, {shown_bytes(total_nbytes)}", err=True
    )


def _shortened(mm_hash: str) -> str:
    return mm_hash if len(mm_hash) <= _ID_CHARACTERS else mm_hash[:_ID_CHARACTERS] + "..."
