"""What was configured where, before anything is made of it.

In the order of `read_sources`, where a later value wins:

1. keys of the YAML file
2. environment `LMCACHE_*`
3. the YAML file's map `ec:` and keys that start with `ec_`
4. environment `LMCACHE_EC_*`
5. environment `ECCACHE_*`
6. vLLM's `ec_connector_extra_config`
7. arguments

The first four are shared with LMCache, which has keys that mean nothing here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from eccache.domain.errors import ConfigError

SHARED_FILE_VARIABLE: Final = "LMCACHE_CONFIG_FILE"
OWN_FILE_VARIABLE: Final = "ECCACHE_CONFIG_FILE"

_SHARED_PREFIX = "LMCACHE_"
_SHARED_ENCODER_PREFIX = "LMCACHE_EC_"
_OWN_PREFIX = "ECCACHE_"
_FILE_PREFIX = "ec_"
_FILE_MAP = "ec"

_NO_SETTINGS = frozenset({SHARED_FILE_VARIABLE, OWN_FILE_VARIABLE, "ECCACHE_NIGHTLY"})
"""Variables with these prefixes that are no settings: the files, and the test suite's own switch."""


class Reader(enum.Enum):
    """Who else reads a source, and so whether a key that means nothing here may stand in it."""

    LMCACHE_TOO = "shared"
    """Any key may: LMCache has many."""
    LMCACHE_FORM = "own file"
    """eccache alone, but it may be a copy of LMCache's file: keys that LMCache is known to have may."""
    ECCACHE_ALONE = "own"
    """No key may."""


@attrs.frozen
class Given:
    """One value as it was written.

    Attributes:
        key: name of the setting.
        value: as the source has it; from the environment always a str.
        source: where it stands, in words.
        reader: who else reads that.
    """

    key: str
    value: Any
    source: str
    reader: Reader


def read_sources(
    environ: Mapping[str, str],
    extra_config: Mapping[str, object],
    arguments: Mapping[str, object],
) -> Iterator[Given]:
    """Yield every value of every source, in the order of precedence.

    Raises:
        ConfigError: the YAML file that the environment names can't be read.
    """
    variable = OWN_FILE_VARIABLE if environ.get(OWN_FILE_VARIABLE) else SHARED_FILE_VARIABLE
    path = environ.get(variable, "")
    document = _read_yaml(path, variable) if path else {}
    reader = Reader.LMCACHE_TOO if variable == SHARED_FILE_VARIABLE else Reader.LMCACHE_FORM

    for key, value in document.items():
        if not _is_encoder_key(key, value):
            yield Given(str(key), value, f"key {key} of {path}", reader)
    yield from _environment(environ, _SHARED_PREFIX, but_not=_SHARED_ENCODER_PREFIX)
    for key, value in document.items():
        if not _is_encoder_key(key, value):
            continue
        if isinstance(value, Mapping) and key.lower() == _FILE_MAP:
            for inner, inner_value in value.items():
                source = f"key {key}.{inner} of {path}"
                yield Given(str(inner).lower(), inner_value, source, reader)
        else:
            name = key.lower().removeprefix(_FILE_PREFIX)
            yield Given(name, value, f"key {key} of {path}", reader)
    yield from _environment(environ, _SHARED_ENCODER_PREFIX)
    yield from _environment(environ, _OWN_PREFIX)
    for key, value in extra_config.items():
        yield Given(
            str(key), value, f"key {key} of ec_connector_extra_config", Reader.ECCACHE_ALONE
        )
    for key, value in arguments.items():
        yield Given(key, value, f"argument {key}", Reader.ECCACHE_ALONE)


def _is_encoder_key(key: object, value: object) -> bool:
    if not isinstance(key, str):
        return False
    name = key.lower()
    return name.startswith(_FILE_PREFIX) or (name == _FILE_MAP and isinstance(value, Mapping))


def _environment(
    environ: Mapping[str, str], prefix: str, *, but_not: str | None = None
) -> Iterator[Given]:
    # Sorted: the order of an environment is nobody's decision.
    for name, value in sorted(environ.items()):
        if not name.startswith(prefix) or name in _NO_SETTINGS:
            continue
        if but_not is not None and name.startswith(but_not):
            continue
        reader = Reader.ECCACHE_ALONE if prefix == _OWN_PREFIX else Reader.LMCACHE_TOO
        key = name.removeprefix(prefix).lower()
        yield Given(key, _unquoted(value), f"environment variable {name}", reader)


def _unquoted(value: str) -> str:
    """Return *value* without quotes around the whole of it: container files leave them there."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _read_yaml(path: str, variable: str) -> Mapping[Any, Any]:
    import yaml

    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            document = yaml.safe_load(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"{variable} names {path!r}, which can't be read: {error}.",
            remedy=f"correct the path, or unset {variable}.",
        ) from error
    except yaml.YAMLError as error:
        place = " ".join(str(error).split())
        raise ConfigError(
            f"{path!r} is no valid YAML: {place}.", remedy="correct the file at that line."
        ) from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigError(
            f"{path!r} holds a {type(document).__name__}, not a map of settings.",
            remedy="write one `name: value` a line.",
        )
    return document
