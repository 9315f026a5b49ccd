"""What commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import click

from eccache.app.amounts import shown_age


def print_json(document: Mapping[str, object] | Sequence[object]) -> None:
    """Print *document* to standard output, with names in the order in which they are given."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=True))


def columns(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> str:
    """Return *rows* in columns that line up, two spaces apart; those in *right* flush right.

    Control characters are shown as `?`: what a client named must not steer the operator's terminal.
    """
    clean = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    widths = [max(map(len, column), default=0) for column in zip(*clean, strict=True)]
    lines = []
    for row in clean:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def counted(number: int, one: str, many: str) -> str:
    """Return *number* with the word for one of them or for many."""
    return f"{number:,} {one if number == 1 else many}"


def shown_time(seconds: float | None, now: float) -> str:
    """Return how long ago a Unix time was; a dash where it is not known."""
    return "-" if seconds is None else shown_age(now - seconds)


def iso_time(seconds: float | None) -> str | None:
    """Return a Unix time in UTC as ISO 8601 has it, to the second; None where it is not known, or no time."""
    if seconds is None:
        return None
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):  # a file system may have any number
        return None
