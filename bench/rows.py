"""One line of the table: what was measured, beside what, and whether it is good enough."""

from __future__ import annotations

import attrs

from bench.contest import Samples
from bench.units import shown_seconds


@attrs.frozen(kw_only=True)
class Row:
    """A measurement and its target.

    Attributes:
        operation: What is done.
        size: Of the entry, or of the store; empty where it does not matter.
        target: What it must reach, for people.
        measured: Amount in *unit*.
        peer: What it is compared with; empty without a peer.
        peer_measured: The peer's amount; None without a peer.
        ratio: `measured / peer_measured`, or the median of the rounds' ratios; None without a peer.
        met: Whether the target is reached; None where there is no target.
        used: How much of what the target allows it takes: 1 is the limit; None: it is not drawn.
        unit: `"s"`, `"B"`, `"1/s"` or `"x"` (a plain number).
        spread: First and third quartile of *measured*.
        note: What else the reader must know.
        axis: What grows from row to row of a curve, e.g. `"entries"`; empty: rows that end in MB are a
            curve over the entry's size.
        x: Where on that axis this row is.
    """

    operation: str
    size: str = ""
    target: str = ""
    measured: float
    peer: str = ""
    peer_measured: float | None = None
    ratio: float | None = None
    met: bool | None = None
    used: float | None = None
    unit: str = "s"
    spread: tuple[float, float] | None = None
    note: str = ""
    axis: str = ""
    x: float | None = None

    @property
    def verdict(self) -> str:
        """`met`, `missed` or a dash."""
        return "-" if self.met is None else "met" if self.met else "missed"


def within(
    samples: Samples, name: str, *, operation: str, at_most_seconds: float, size: str = ""
) -> Row:
    """Return the row of a contender that has a limit in seconds."""
    measured = samples.median(name)
    return Row(
        operation=operation,
        size=size,
        target=f"<= {shown_seconds(at_most_seconds)}",
        measured=measured,
        met=measured <= at_most_seconds,
        used=measured / at_most_seconds,
        spread=samples.quartiles(name),
    )


def at_most_times(
    samples: Samples, name: str, peer: str, *, operation: str, times: float, size: str = ""
) -> Row:
    """Return the row of a contender that may take *times* as long as its peer."""
    ratio = samples.ratio(name, peer)
    return _beside(samples, name, peer, operation, size, f"<= {times:g} x peer", ratio / times)


def times_faster(
    samples: Samples, name: str, peer: str, *, operation: str, times: float, size: str = ""
) -> Row:
    """Return the row of a contender that must be *times* as fast as its peer."""
    ratio = samples.ratio(name, peer)
    target = f">= {times:g} x faster"
    return _beside(samples, name, peer, operation, size, target, ratio * times)


def beside(samples: Samples, name: str, peer: str, *, operation: str, size: str = "") -> Row:
    """Return the row of a contender without a target, beside its peer."""
    return _beside(samples, name, peer, operation, size, "", None)


def _beside(
    samples: Samples,
    name: str,
    peer: str,
    operation: str,
    size: str,
    target: str,
    used: float | None,
) -> Row:
    return Row(
        operation=operation,
        size=size,
        target=target,
        measured=samples.median(name),
        peer=peer,
        peer_measured=samples.median(peer),
        ratio=samples.ratio(name, peer),
        met=None if used is None else used <= 1,
        used=used,
        spread=samples.quartiles(name),
    )
