"""Fields of the configuration that know their unit, their meaning and what they may be.

`docs/configuration.md` is the table of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

from eccache.app.config import rules
from eccache.app.config.disk_path import absolute_directory


def setting(
    meaning: str, rule: rules.Rule, *, default: object, unit: str = "", optional: bool = False
) -> Any:  # noqa: ANN401 - as attrs.field, it stands for the type of the attribute
    """Return the field of a setting.

    Args:
        meaning: what it does, in words.
        rule: what it may be.
        default: its value where nothing is configured.
        unit: in what it is counted; "" for what has no unit.
        optional: None is allowed too.
    """
    return attrs.field(
        default=default,
        converter=_as_float if unit else None,
        validator=attrs.validators.optional(rule) if optional else rule,
        metadata={"meaning": meaning, "unit": unit},
    )


def size(meaning: str, *, default: float | None) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a number of GiB above 0; one whose default is None may be None."""
    rule = rules.number(above=0, unit="GiB")
    return setting(meaning, rule, default=default, unit="GiB", optional=default is None)


def seconds(meaning: str, *, default: float) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a time above 0."""
    return setting(meaning, rules.number(above=0, unit="seconds"), default=default, unit="s")


def flag(meaning: str, *, default: bool) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a yes or no."""
    return setting(meaning, rules.flag, default=default)


def threads(meaning: str, *, default: int) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a number of threads, at least one."""
    return setting(meaning, rules.number(at_least=1, whole=True), default=default)


def directory(meaning: str) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a directory, by default none."""
    return attrs.field(
        default=None, converter=absolute_directory, metadata={"meaning": meaning, "unit": ""}
    )


def passed_through(meaning: str) -> Any:  # noqa: ANN401 - as setting()
    """Return the field of a mapping that is handed on as it is, by default empty."""
    return attrs.field(
        factory=dict,
        converter=_frozen_copy,
        validator=rules.text_keys,
        hash=False,
        metadata={"meaning": meaning, "unit": ""},
    )


def _as_float(value: object) -> object:
    # What is too large stays as it was written, for the words that refuse it; a float might not hold it.
    return float(value) if type(value) is int and value < rules.TOO_LARGE else value


def _frozen_copy(values: object) -> object:
    return MappingProxyType(dict(values)) if isinstance(values, Mapping) else values
