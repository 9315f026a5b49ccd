"""From the sources to one configuration that knows where each of its values came from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from eccache.app.config.cache_config import CacheConfig
from eccache.app.config.lmcache_form import as_eccache_takes_it
from eccache.app.config.lmcache_keys import KV_KEYS, TIER_KEYS
from eccache.app.config.names import FIELDS, LMCACHE_MAP, nearest_setting
from eccache.app.config.redaction import for_people
from eccache.app.config.report import Report, log_report
from eccache.app.config.sources import Reader, read_sources
from eccache.app.config.values import BadSettingsError, as_mapping, structure
from eccache.domain.errors import ConfigError

DEFAULT = "default"
"""The source of a value that nobody configured."""


@attrs.frozen
class LoadedConfig:
    """A configuration and its provenance.

    Attributes:
        config: the effective values.
        sources: where each value came from, by field name, and by `lmcache.<key>` for what is passed
            through; `DEFAULT` where nobody configured it.
    """

    config: CacheConfig
    sources: Mapping[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return `(name, value, source)` of every setting for people to read; secrets are hidden."""
        values: dict[str, Any] = {
            name: getattr(self.config, name) for name in self.sources if name in FIELDS
        }
        values |= {f"{LMCACHE_MAP}.{key}": value for key, value in self.config.lmcache.items()}
        return [
            (name, for_people(name, value), self.sources[name])
            for name, value in values.items()
            if name != LMCACHE_MAP
        ]


def load_config(
    extra_config: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    report: Report = log_report,
    **arguments: object,
) -> CacheConfig:
    """Return the configuration that all sources together give.

    Later wins: defaults, keys of the YAML file, environment `LMCACHE_*`, the file's map `ec:` and its
    keys `ec_*`, environment `LMCACHE_EC_*`, environment `ECCACHE_*`, *extra_config*, *arguments*. The
    file is named by `ECCACHE_CONFIG_FILE`, or else by `LMCACHE_CONFIG_FILE`.

    Args:
        extra_config: vLLM's `ec_connector_extra_config`.
        environ: stands for the environment of the process, which is the default.
        report: takes what was dropped from the sources that LMCache reads too, and that the cache is off.
        arguments: values by field name.

    Raises:
        ConfigError: a value can't be used, or one of eccache's own sources has an unknown key; names
            every such field, its source, and what to write instead.
    """
    loaded = load_config_with_sources(extra_config, environ=environ, report=report, **arguments)
    if not loaded.config.enabled:
        report(
            "config.cache.switched_off",
            warning=True,
            source=loaded.sources["enabled"],
            effect="nothing is stored, every get misses",
            remedy="set enabled to true, or remove it",
        )
    return loaded.config


def load_config_with_sources(
    extra_config: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    report: Report = log_report,
    **arguments: object,
) -> LoadedConfig:
    """Return the configuration and the source of each value; otherwise as `load_config`.

    Raises:
        ConfigError: as `load_config`.
    """
    given = read_sources(os.environ if environ is None else environ, extra_config or {}, arguments)
    values: dict[str, object] = {}
    passed: dict[str, object] = {}
    sources = dict.fromkeys((field.name for field in attrs.fields(CacheConfig)), DEFAULT)
    for item in given:
        taken = item if item.reader is Reader.ECCACHE_ALONE else as_eccache_takes_it(item, report)
        if taken is None:
            continue
        value = as_mapping(taken.value) if taken.key == LMCACHE_MAP else taken.value
        if taken.key in TIER_KEYS:
            passed[taken.key] = value
            sources[f"{LMCACHE_MAP}.{taken.key}"] = taken.source
        elif taken.key == LMCACHE_MAP and isinstance(value, Mapping):
            passed |= value
            sources |= {f"{LMCACHE_MAP}.{key}": taken.source for key in value}
        else:
            values[taken.key] = value
            sources[taken.key] = taken.source
    try:
        config = structure({LMCACHE_MAP: passed} | values)
    except BadSettingsError as bad:
        raise _explained(bad, sources) from bad
    return LoadedConfig(config, MappingProxyType(sources))


def _explained(bad: BadSettingsError, sources: Mapping[str, str]) -> ConfigError:
    """Return one error that says of every bad setting what, where, and what to write instead."""
    found: list[tuple[str, str]] = []
    for key in sorted(bad.unknown):
        cause = f"{key}: there is no such setting (in {sources[key]})."
        found.append((cause, _remedy_for_unknown(key)))
    for name, error in bad.errors.items():
        place = f" (in {sources[name]})" if name else ""
        found.append((error.cause.removesuffix(".") + place + ".", error.remedy))
    if len(found) == 1:
        return ConfigError(found[0][0], remedy=found[0][1])
    return ConfigError(
        _numbered(cause for cause, _ in found), remedy=_numbered(remedy for _, remedy in found)
    )


def _remedy_for_unknown(key: str) -> str:
    if key in KV_KEYS:
        return f"remove {key}; it is of LMCache's KV cache and has no influence here."
    nearest = nearest_setting(key)
    if nearest is not None:
        return f"write {nearest}, which is the nearest, or remove it."
    return "remove it; docs/configuration.md lists the settings."


def _numbered(texts: Iterable[str]) -> str:
    return " ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
