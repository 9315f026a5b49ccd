"""Results for people and programs: a table, JSON, a picture, and a page with all of it."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from bench.machine import Machine
from bench.rows import Row
from bench.units import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

COLUMNS = 2
QUICK = "; --quick: few repetitions, so that no figure means much"
HEADINGS = ("operation", "size", "target", "measured", "peer", "its figure", "ratio", "verdict")
_COLOURS = {"met": "#2a7f3f", "missed": "#b3261e", "-": "#555555"}


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row's line."""
    return (
        row.operation,
        row.size,
        row.target,
        shown(row.measured, row.unit),
        row.peer,
        "" if row.peer_measured is None else shown(row.peer_measured, row.unit),
        "" if row.ratio is None else f"{row.ratio:.3g}",
        row.verdict,
    )


def print_row(row: Row) -> None:
    """Print a row as soon as it is there; the whole table comes at the end."""
    operation, size, target, measured, peer, theirs, ratio, verdict = cells(row)
    against = f"{peer} {theirs} ({ratio} x)" if peer else ""
    line = f"  {operation} {size}: {measured} {against} {target} {verdict} {row.note}"
    print(" ".join(line.split(" ")).rstrip(), flush=True)


def judged_first(rows: Sequence[Row]) -> list[Row]:
    """Return *rows*, those with a target first, else in the order of their measurement."""
    return sorted(rows, key=lambda row: row.met is None)


def print_table(rows: Sequence[Row]) -> None:
    """Print the table, rows with a target first."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_lines=False)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in judged_first(rows):
        style = {True: "green", False: "red", None: "dim"}[row.met]
        *start, verdict = cells(row)
        table.add_row(*start, f"[{style}]{verdict}[/{style}]")
    Console(width=170).print(table)


def write(
    folder: Path, name: str, machine: Machine, rows: Sequence[Row], *, quick: bool = False
) -> Path:
    """Write `<name>.json`, `.md`, `.png` and `.html` into *folder*, and return the page.

    Args:
        folder: Made if missing.
        name: Of the suite.
        machine: Where it was.
        rows: What was measured.
        quick: Whether it was with few repetitions, which is then said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "machine": attrs.asdict(machine),
        "quick": quick,
        "rows": [attrs.asdict(row) | {"verdict": row.verdict} for row in rows],
    }
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    heading = f"{machine.line()}{QUICK if quick else ''}"
    (folder / f"{name}.md").write_text(_markdown(heading, rows))
    picture = folder / f"{name}.png"
    draw(picture, rows)
    page = folder / f"{name}.html"
    page.write_text(_page(name, heading, machine.versions, rows, [picture]))
    return page


def _markdown(heading: str, rows: Sequence[Row]) -> str:
    lines = [
        heading,
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows if row.met is not None]
    return "\n".join(lines) + "\n"


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw how far every target is met, and the curves over the entry's size."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    curves = {
        drawing: series
        for drawing, series in _curves(rows).items()
        if len(series) > 1 or any(len(points) > 1 for points in series.values())
    }
    judged = sum(row.used is not None for row in rows)
    lines = -(-len(curves) // COLUMNS)
    heights = [height for height in (0.28 * judged + 0.8 if judged else 0, 4.2 * lines) if height]
    figure = plt.figure(figsize=(14, sum(heights)), layout="constrained")
    parts = list(figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0])
    if judged:
        _draw_targets(parts.pop(0).subplots(), rows)
    if curves:
        axes = list(parts.pop().subplots(lines, COLUMNS, squeeze=False).flat)
        for axis in axes[len(curves) :]:
            axis.set_visible(False)
        for axis, (drawing, series) in zip(axes, curves.items(), strict=False):
            _draw_curves(axis, drawing, series)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_targets(axis: Axes, rows: Sequence[Row]) -> None:
    judged = [(row, row.used) for row in rows if row.used is not None]
    labels = [f"{row.operation} {row.size} ({row.target})" for row, _ in judged]
    values = [used for _, used in judged]
    axis.barh(labels, values, color=[_COLOURS[row.verdict] for row, _ in judged], height=0.7)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log")
    _plain_numbers(axis.xaxis)
    axis.invert_yaxis()
    axis.set_xlabel("measured, as a multiple of what the target allows: left of the line is met")
    axis.tick_params(axis="y", labelsize=7)


@attrs.frozen
class _Drawing:
    """What is drawn into one pair of axes."""

    operation: str
    axis: str
    unit: str


_MEGABYTES = " MB"


def _curves(rows: Sequence[Row]) -> dict[_Drawing, dict[str, dict[float, float]]]:
    """Return the curves: by what is drawn together, by name, the points of each."""
    curves: dict[_Drawing, dict[str, dict[float, float]]] = {}
    for row in rows:
        axis, x = row.axis, row.x
        if not axis and row.unit == "s" and row.size.endswith(_MEGABYTES):
            axis, x = "entry, MB", float(row.size.removesuffix(_MEGABYTES))
        if x is None:
            continue
        series = curves.setdefault(_Drawing(row.operation, axis, row.unit), {})
        series.setdefault("eccache", {})[x] = row.measured
        if row.peer_measured is not None:
            series.setdefault(row.peer, {})[x] = row.peer_measured
    return curves


def _draw_curves(axis: Axes, drawing: _Drawing, series: dict[str, dict[float, float]]) -> None:
    factor, unit = (1e3, "ms") if drawing.unit == "s" else (1.0, drawing.unit)
    for name, points in series.items():
        axis.plot(
            sorted(points),
            [points[x] * factor for x in sorted(points)],
            marker="o",
            linewidth=2.5 if name == "eccache" else 1.2,
            label=name,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    if high < 10 * low:  # what hardly changes is to look like it
        axis.set_ylim(low / 3, high * 3)
    _plain_numbers(axis.xaxis)
    _plain_numbers(axis.yaxis)
    axis.set_title(drawing.operation, fontsize=9)
    axis.set_xlabel(drawing.axis, fontsize=8)
    axis.set_ylabel(unit, fontsize=8)
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))  # no curve is behind it


def _plain_numbers(axis: XAxis | YAxis) -> None:
    """Label a logarithmic axis with 0.5 and 20 instead of powers of ten, also within one decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; color: #1b1b1b }
table { border-collapse: collapse; width: 100%; font-size: 13px }
td, th { border-bottom: 1px solid #ddd; padding: .25em .6em; text-align: left; vertical-align: top }
td:nth-child(n+4) { white-space: nowrap } img { max-width: 100%; margin-top: 1.5em }
.met { color: #2a7f3f; font-weight: 600 } .missed { color: #b3261e; font-weight: 600 }
"""


def _page(
    name: str,
    heading: str,
    packages: Mapping[str, str],
    rows: Sequence[Row],
    pictures: Sequence[Path],
) -> str:
    """Return a page that needs no other file."""
    head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
    body = "".join(_html_row(row) for row in judged_first(rows))
    images = "".join(
        f'<img alt="{html.escape(picture.stem)}" src="data:image/png;base64,'
        f'{base64.b64encode(picture.read_bytes()).decode()}">'
        for picture in pictures
    )
    versions = ", ".join(f"{package} {version}" for package, version in packages.items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>eccache: {html.escape(name)}</title>'
        f"<style>{_STYLE}</style><h1>eccache: {html.escape(name)}</h1>"
        f"<p>{html.escape(heading)}</p><p>{html.escape(versions)}</p>"
        f"<table><tr>{head}</tr>{body}</table>{images}</html>\n"
    )


def _html_row(row: Row) -> str:
    *start, verdict = cells(row)
    columns = "".join(f"<td>{html.escape(cell)}</td>" for cell in start)
    note = f' title="{html.escape(row.note)}"' if row.note else ""
    return f'<tr{note}>{columns}<td class="{verdict}">{verdict}</td></tr>'
