"""What a single setting may be: rules that say cause and remedy.

A rule is an attrs validator, so a value is checked alike whether it came from a file or from a
constructor call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from eccache.app.config.redaction import for_people
from eccache.domain.errors import ConfigError

Rule = Callable[[Any, Any, Any], None]

_SHOWN_CHARACTERS = 80


def refusal(name: str, value: object, why: str, remedy: str) -> ConfigError:
    """Return the error that says that *value* can't be *name*."""
    shown = for_people(name, repr(value))
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[:_SHOWN_CHARACTERS] + "..."
    return ConfigError(f"{name}: {shown} {why}.", remedy=remedy)


def flag(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Require a bool."""
    if not isinstance(value, bool):
        raise refusal(field.name, value, "is neither true nor false", "write true or false.")


def text(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Require a str."""
    if not isinstance(value, str):
        raise refusal(field.name, value, "is no text", "write it in quotes.")


def one_of(*allowed: str) -> Rule:
    """Require one of the words *allowed*."""

    def rule(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if value not in allowed:
            words = " or ".join(map(repr, allowed))
            raise refusal(field.name, value, "is not known", f"write {words}.")

    return rule


TOO_LARGE: Final = 10**9
"""No size in GiB and no time in seconds needs as much. Timers and 64 bits hold not even ten times of it."""
_GIB: Final = 1 << 30


def number(
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    whole: bool = False,
    unit: str = "",
) -> Rule:
    """Require a finite number within bounds.

    Args:
        above: it must be greater.
        at_least: it must be this or greater.
        below: it must be less.
        whole: it must be an int.
        unit: in what it is counted, for the remedy.
    """
    bounds = [
        words
        for bound, words in (
            (above, f"above {above}"),
            (at_least, f"at least {at_least}"),
            (below, f"below {below}"),
        )
        if bound is not None
    ]
    wanted = " ".join(
        filter(
            None,
            [
                "a",
                "whole" if whole else "",
                "number",
                f"of {unit}" if unit else "",
                " and ".join(bounds),
            ],
        )
    )

    def rule(_: object, field: attrs.Attribute[Any], value: object) -> None:
        remedy = f"write {wanted}."
        kind = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind):
            raise refusal(field.name, value, f"is no {'whole ' if whole else ''}number", remedy)
        if isinstance(value, float) and not math.isfinite(value):
            raise refusal(field.name, value, "is not finite", remedy)
        if value >= TOO_LARGE:
            raise refusal(field.name, value, "is too large", _remedy_of_large(value, unit, wanted))
        if (
            (above is not None and value <= above)
            or (at_least is not None and value < at_least)
            or (below is not None and value >= below)
        ):
            raise refusal(field.name, value, "is out of bounds", remedy)

    return rule


def _remedy_of_large(value: float, unit: str, wanted: str) -> str:
    """Return what to write in place of *value*, which may be a number of bytes where GiB are wanted."""
    if unit == "GiB" and value < TOO_LARGE * _GIB:
        return f"the unit is GiB: write {round(value / _GIB, 2):g} if that is a number of bytes."
    return f"write {wanted} and below {TOO_LARGE:,}."


def client_id_trust(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Require a bool, or a regular expression that the whole of a trusted id matches."""
    if isinstance(value, bool):
        return
    remedy = "write false, true, or a regular expression that the whole id must match."
    if not isinstance(value, str) or not value:
        raise refusal(field.name, value, "is neither a flag nor a pattern", remedy)
    try:
        re.compile(value)
    except re.error as error:
        raise refusal(field.name, value, f"is no regular expression ({error})", remedy) from error


def text_keys(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Require a mapping whose keys are text."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refusal(field.name, value, "is no mapping of names to values", "write a map.")
