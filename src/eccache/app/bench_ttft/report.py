"""Shows people what a run found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eccache.app.bench_ttft.result import Measured, TtftResult

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = (
    *("case", "connector", "cold", "after restart", "sooner", "saved", "encoder"),
    *("of encoder saved", "load", "load / encoder", "answers"),
)


def print_report(console: Console, result: TtftResult) -> None:
    """Print the table."""
    from rich.table import Table

    table = Table(title=f"Time to first token, {result.model}")
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right")  # noqa: PLR2004
    for one in result.measured:
        table.add_row(*cells(one))
    console.print(table)
    console.print(result.machine, soft_wrap=True, highlight=False)
    console.print(
        "Medians. Prefix caching off; every server was warmed up with the same media under another id; "
        "what the encoder took is vLLM's own count.",
        soft_wrap=True,
        highlight=False,
    )


def cells(one: Measured) -> tuple[str, ...]:
    """Return the cells of one line."""
    return (
        one.case,
        one.connector,
        _seconds(one.cold_seconds),
        _seconds(one.warm_seconds),
        "-" if one.speed_up is None else f"{one.speed_up:.2f} x",
        _seconds(one.saved_seconds),
        _seconds(one.encoder_seconds),
        _share(one.encoder_share_saved),
        _seconds(one.load_seconds),
        _share(one.load_share, digits=2),
        "equal" if one.answers_equal else "DIFFERENT",
    )


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if abs(seconds) >= 1 else f"{seconds * 1e3:.1f} ms"


def _share(share: float | None, *, digits: int = 0) -> str:
    return "-" if share is None else f"{share:.{digits}%}"
