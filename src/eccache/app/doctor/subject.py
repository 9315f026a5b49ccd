"""What the checks look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from eccache.app.config import CacheConfig, LoadedConfig, load_config_with_sources
from eccache.app.doctor.machine import Machine
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import Namespace
from eccache.ports.inspection import ServerFacts

CONFIG_FILE_VARIABLES: Final = ("ECCACHE_CONFIG_FILE", "LMCACHE_CONFIG_FILE")


@attrs.frozen
class DroppedKey:
    """A key of a source that LMCache reads too, which means nothing to eccache.

    Attributes:
        key: as it is written.
        source: where.
        nearest: the setting that it may have meant; empty if none is near.
    """

    key: str
    source: str
    nearest: str


@attrs.frozen(kw_only=True)
class Subject:
    """One set-up under examination.

    Attributes:
        machine: what there is to build on.
        loaded: the configuration; None where it can't be used.
        config_error: why it can't.
        dropped: keys without meaning that are near to a setting.
        root: directory of the entries; None where there is none.
        server: what the server would do; None where no server was described.
        server_error: why that can't be told.
        wrong_option: the cache's connector was given to the option of KV caches.
        namespace: what the server's entries are stored under.
        stored: every namespace that the root has entries of.
        stored_nbytes: bytes that the root holds already.
        self_test: stores, reads and removes a small entry in the root, or says why that failed.
        try_tier: asks the remote tier and returns the names of its parts, or says why that failed; None where
            there is none, or it may not be asked.
    """

    machine: Machine
    loaded: LoadedConfig | None = None
    config_error: ConfigError | None = None
    dropped: tuple[DroppedKey, ...] = ()
    root: str | None = None
    server: ServerFacts | None = None
    server_error: ConfigError | None = None
    wrong_option: bool = False
    namespace: Namespace | None = None
    stored: tuple[Namespace, ...] = ()
    stored_nbytes: int = 0
    self_test: Callable[[], None] | None = None
    try_tier: Callable[[], str] | None = None

    @property
    def config(self) -> CacheConfig | None:
        """The effective configuration."""
        return None if self.loaded is None else self.loaded.config


def loaded_or_error(
    extra_config: Mapping[str, object], arguments: Mapping[str, Any]
) -> tuple[LoadedConfig | None, ConfigError | None, tuple[DroppedKey, ...]]:
    """Load the configuration from all sources; what goes wrong is a result, not an exception."""
    dropped: list[DroppedKey] = []

    def report(event: str, *, warning: bool, **fields: str) -> None:
        if warning and event == "config.key.dropped":
            dropped.append(DroppedKey(fields["key"], fields["source"], fields["nearest"]))

    try:
        loaded = load_config_with_sources(extra_config, report=report, **arguments)
    except ConfigError as wrong:
        return None, wrong, tuple(dropped)
    return loaded, None, tuple(dropped)
