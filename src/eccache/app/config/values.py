"""From what was written to a `CacheConfig`: text becomes numbers and flags, every bad field is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs
from cattrs import Converter
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from eccache.app.config.cache_config import CacheConfig
from eccache.domain.errors import ConfigError

_YES = frozenset({"true", "1", "yes", "on"})
_NO = frozenset({"false", "0", "no", "off"})
_NOTHING = frozenset({"", "none", "null"})


class BadSettingsError(Exception):
    """Settings that can't be used.

    Attributes:
        errors: by the setting's name; "" for what is wrong with several together.
        unknown: names of no setting.
    """

    def __init__(self, errors: Mapping[str, ConfigError], unknown: frozenset[str]) -> None:
        self.errors = errors
        self.unknown = unknown
        super().__init__(", ".join([*errors, *sorted(unknown)]))


def structure(values: Mapping[str, object]) -> CacheConfig:
    """Return the configuration that *values* by field name describe.

    Numbers and flags may be text, as an environment has them. A value of the wrong kind is left as it
    is, and the field's own rule says what is wrong with it.

    Raises:
        BadSettingsError: names every field that can't be used, and every unknown name.
    """
    try:
        return _CONVERTER.structure(values, CacheConfig)
    except ClassValidationError as error:
        raise _sorted_out(error) from error


def _sorted_out(error: ClassValidationError) -> BadSettingsError:
    by_field, others = error.group_exceptions()
    errors = {note.name: cause for cause, note in by_field if isinstance(cause, ConfigError)}
    unknown: set[str] = set()
    for other in others:
        if isinstance(other, ForbiddenExtraKeysError):
            unknown |= other.extra_fields
        elif isinstance(other, ConfigError):
            errors[""] = other
    if len(errors) + (1 if unknown else 0) < len(by_field) + len(others):
        raise error  # A fault of this module, which no remedy would mend.
    return BadSettingsError(errors, frozenset(unknown))


def _as_flag(value: object) -> object:
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _YES else False if word in _NO else value


def _as_whole_number(value: object) -> object:
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _as_number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _as_text(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


def _as_word(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def as_mapping(value: object) -> object:
    """Return the map that *value* is, or is the JSON text of; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _or_none(read: Callable[[object], object]) -> Callable[[object], object]:
    def reader(value: object) -> object:
        nothing = isinstance(value, str) and value.strip().lower() in _NOTHING
        return None if nothing else read(value)

    return reader


_READERS: Mapping[Any, Callable[[object], object]] = {
    bool: _as_flag,
    int: _as_whole_number,
    float: _as_number,
    str: _as_text,
    bool | str: _as_flag,
    int | None: _or_none(_as_whole_number),
    float | None: _or_none(_as_number),
    str | None: lambda value: value,
    Literal["process", "power"]: _as_word,
    Mapping[str, Any]: as_mapping,
}
"""How a value is read, by the type of its field."""


def _checked(field: attrs.Attribute[Any]) -> Callable[[object, object], object]:
    """Return the hook that reads and checks one field, so that each bad one is found, not the first."""
    read = _READERS[field.type]
    convert: Any = field.converter

    def hook(value: object, _: object) -> object:
        result = read(value)
        if convert is not None:
            result = convert(result)
        if field.validator is not None:
            field.validator(None, field, result)
        return result

    return hook


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    fields = attrs.fields(attrs.resolve_types(CacheConfig))
    hooks: Any = {field.name: override(struct_hook=_checked(field)) for field in fields}
    converter.register_structure_hook(
        CacheConfig,
        make_dict_structure_fn(CacheConfig, converter, _cattrs_forbid_extra_keys=True, **hooks),
    )
    return converter


_CONVERTER = _converter()
