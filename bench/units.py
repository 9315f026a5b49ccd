"""Amounts for people."""

from __future__ import annotations


def shown_seconds(seconds: float) -> str:
    """Return a duration with three digits that mean something, e.g. `4.21 ms`."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def shown_bytes(nbytes: float) -> str:
    """Return an amount of bytes, e.g. `130.8 MB`."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:.4g} {unit}"
    return f"{nbytes:.0f} B"


def shown(amount: float, unit: str) -> str:
    """Return an amount in a row's unit."""
    if unit == "s":
        return shown_seconds(amount)
    if unit == "B":
        return shown_bytes(amount)
    return f"{amount:.3g}" if unit == "x" else f"{amount:.3g} {unit}"
