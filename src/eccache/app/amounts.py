"""Bytes and ages as a person reads them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_KIBI: Final = 1024
_AGES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def shown_bytes(nbytes: float) -> str:
    """Return *nbytes* in the binary unit in which it has one to four digits, e.g. `1.5 GiB`."""
    if abs(nbytes) < _KIBI:
        return f"{nbytes:.0f} B"
    for unit in _UNITS:
        nbytes /= _KIBI
        if abs(nbytes) < _KIBI or unit == _UNITS[-1]:
            break
    return f"{nbytes:.1f} {unit}"


def shown_age(seconds: float) -> str:
    """Return an age in its largest whole unit, e.g. `3 h`; an age below a minute is in seconds."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
