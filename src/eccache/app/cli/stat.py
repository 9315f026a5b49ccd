"""`eccache stat`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eccache.app.amounts import shown_bytes
from eccache.app.cli.failure import failures_explained
from eccache.app.cli.output import columns, iso_time, print_json, shown_time
from eccache.app.cli.store_options import open_store_at, store_options

if TYPE_CHECKING:
    from eccache.ports.maintenance import Amount, NamespaceSummary, StoreSummary

_MOST_MODELS = 3
_SHOWN_INGREDIENTS = ("model", "revision", "dtype", "quantization", "vllm", "epoch")


@click.command("stat")
@store_options
def command(path: Path | None, *, as_json: bool) -> None:
    """Show what a store holds, and how much of its caps it uses.

    Looks into every directory and reads no entry. Hits and misses are
    counts of a running server: see its /metrics.

    Exits with 3 when there is no store.
    """
    with failures_explained():
        store = open_store_at(path)
        summary = store.maintenance.summary()
        if as_json:
            print_json(_document(summary, store.capacity_nbytes))
        else:
            _print_for_people(summary, store.capacity_nbytes)


def _amount(amount: Amount) -> dict[str, int]:
    return {"count": amount.count, "bytes": amount.nbytes}


def _document(summary: StoreSummary, capacity_nbytes: int | None) -> dict[str, object]:
    return {
        "path": summary.root,
        "entries": summary.entries.count,
        "bytes_stored": summary.entries.nbytes,
        "capacity_bytes": capacity_nbytes,
        "free_bytes": summary.free_nbytes,
        "total_bytes": summary.total_nbytes,
        "unfinished": _amount(summary.unfinished),
        "quarantined": _amount(summary.quarantined),
        "other_formats": {
            str(version): _amount(amount) for version, amount in summary.other_formats.items()
        },
        "namespaces": [
            {
                "fingerprint": namespace.fingerprint,
                "ingredients": dict(namespace.ingredients),
                "models": list(namespace.models),
                "entries": namespace.entries.count,
                "bytes": namespace.entries.nbytes,
                "last_used": iso_time(namespace.last_used_seconds),
            }
            for namespace in _largest_first(summary)
        ],
    }


def _largest_first(summary: StoreSummary) -> list[NamespaceSummary]:
    return sorted(summary.namespaces, key=lambda namespace: -namespace.entries.nbytes)


def _print_for_people(summary: StoreSummary, capacity_nbytes: int | None) -> None:
    entries = summary.entries
    used = shown_bytes(entries.nbytes)
    if capacity_nbytes is not None:
        share = entries.nbytes / capacity_nbytes
        used += f" of {shown_bytes(capacity_nbytes)} ({share:.0%})"
    mean = shown_bytes(entries.nbytes / entries.count) if entries.count else "-"
    rows = [
        ["path", summary.root],
        ["entries", f"{entries.count:,}"],
        ["stored", used],
        ["mean entry", mean],
        ["unfinished", _shown(summary.unfinished)],
        ["quarantined", _shown(summary.quarantined)],
        [
            "file system",
            f"{shown_bytes(summary.free_nbytes)} free of {shown_bytes(summary.total_nbytes)}",
        ],
    ]
    rows += [
        [f"format {version}", _shown(amount)] for version, amount in summary.other_formats.items()
    ]
    click.echo(columns(rows))
    if not summary.namespaces:
        return
    now = time.time()
    heading = ["namespace", "entries", "stored", "last used", "what it is"]
    table = [
        [
            namespace.fingerprint,
            f"{namespace.entries.count:,}",
            shown_bytes(namespace.entries.nbytes),
            shown_time(namespace.last_used_seconds, now),
            _words(namespace),
        ]
        for namespace in _largest_first(summary)
    ]
    click.echo("\n" + columns([heading, *table], right=frozenset({1, 2, 3})))


def _shown(amount: Amount) -> str:
    return f"{amount.count:,} ({shown_bytes(amount.nbytes)})"


def _words(namespace: NamespaceSummary) -> str:
    """Return what an operator tells namespaces apart by: of vLLM's many ingredients a few, of others' all."""
    ingredients = namespace.ingredients
    others = () if "vllm" in ingredients else sorted({*ingredients} - {*_SHOWN_INGREDIENTS})
    named = [
        ingredients[name] if name == "model" else f"{name}={ingredients[name]}"
        for name in (*_SHOWN_INGREDIENTS, *others)
        if ingredients.get(name)
    ]
    models = [*namespace.models[:_MOST_MODELS]]
    if len(namespace.models) > _MOST_MODELS:
        models.append(f"and {len(namespace.models) - _MOST_MODELS} more models")
    return " ".join([*models, *named]) or "(not described)"
