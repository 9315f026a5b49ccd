"""The one place where a fault becomes a miss.

Used at the root of each thread and at the boundary with a host framework. Nowhere else is an
unexpected exception absorbed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from eccache.ports.telemetry import Level, Telemetry

R = TypeVar("R")

CAUSE_CHARACTERS: Final = 500
"""What is shown of a fault's own words, which may quote anything."""


def guarded(telemetry: Telemetry, where: str, function: Callable[[], R], otherwise: R) -> R:
    """Return what *function* returns; if it raises, count and report the fault and return *otherwise*.

    Args:
        telemetry: counts `faults` (reason *where*) and reports the event `<where>.fault.absorbed`.
        where: names the boundary, e.g. `"writer"`.
        function: what to do.
        otherwise: what a fault amounts to.
    """
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - the guard itself
        absorb(telemetry, where, error)
        return otherwise


def absorb(telemetry: Telemetry, where: str, fault: Exception) -> None:
    """Count and report *fault*, as `guarded` does.

    For the few callers that are called so often that two calls more would be seen: they catch themselves.
    """
    telemetry.count("faults", reason=where)
    telemetry.event(
        Level.WARNING,
        f"{where}.fault.absorbed",
        error=type(fault).__name__,
        cause=str(fault)[:CAUSE_CHARACTERS],
    )
