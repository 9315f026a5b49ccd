"""Trying out the remote tier: opened as a server opens it, asked for an entry that nobody stored."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs

from eccache.adapters.system import SystemClock
from eccache.app.bootstrap.stores import lmcache_settings
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.config import CacheConfig
from eccache.domain.entry_ref import EntryRef
from eccache.domain.namespace import Namespace

if TYPE_CHECKING:
    from eccache.adapters.lmcache import LMCacheSettings

PATIENCE_SECONDS: Final = 3.0
"""For one call of the tier; opening, asking and closing together take at most three times that."""
_POOL_GIB: Final = 0.03125
_LOG_LEVEL: Final = "LMCACHE_LOG_LEVEL"
_PRELOADED: Final = "lmcache.v1.storage_backend.storage_manager"


def has_remote_tier(config: CacheConfig) -> bool:
    """Return whether a server with *config* opens a tier behind its local store."""
    from eccache.adapters.lmcache import names_a_place

    return config.enabled and names_a_place(config.lmcache)


def try_out_tier(config: CacheConfig) -> str:
    """Open the remote tier, ask it for an entry that is not there, and return the names of its parts.

    Nothing is stored. A tier that does not answer is given up after some seconds.

    Raises:
        ConfigError: LMCache is missing, or can't be opened so.
        StoreFault: the tier does not answer, or not as a store.
    """
    settings = attrs.evolve(
        lmcache_settings(config),
        # A pool of its own beside that of a running server, for no entry at all.
        keys=dict(config.lmcache) | {"max_local_cpu_size": _POOL_GIB},
        timeout_seconds=min(PATIENCE_SECONDS, config.store_timeout_seconds),
        close_timeout_seconds=PATIENCE_SECONDS,
    )
    calls = BoundedCalls("eccache-trial")
    with _lmcache_is_quiet():
        # Loading it takes seconds that are not the tier's; what is wrong with it is said when it is opened.
        with contextlib.suppress(ImportError):
            importlib.import_module(_PRELOADED)
        try:
            return calls.call(lambda: _asked(settings), 3 * PATIENCE_SECONDS)
        finally:
            calls.close()


def _asked(settings: LMCacheSettings) -> str:
    from eccache.adapters.lmcache import open_lmcache_store

    store = open_lmcache_store(settings, SystemClock())
    try:
        nobodys = Namespace.from_ingredients({"model": "eccache doctor"})
        lease = store.get(EntryRef.for_mm_hash(nobodys, "eccache", "nothing", "bfloat16"))
        if lease is not None:  # pragma: no cover - nobody stores under this name
            lease.close()
        return ", ".join(store.backend_names)
    finally:
        store.close()


@contextlib.contextmanager
def _lmcache_is_quiet() -> Iterator[None]:
    """Keep LMCache's log out of the findings, which say what it would; an operator's own level stays."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "CRITICAL"
    try:
        yield
    finally:
        del os.environ[_LOG_LEVEL]
