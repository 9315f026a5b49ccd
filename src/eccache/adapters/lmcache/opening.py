"""Opening a storage manager for encoder outputs from LMCache's own configuration keys."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import attrs

from eccache.adapters.lmcache.store import LMCacheStore
from eccache.domain.errors import ConfigError

if TYPE_CHECKING:
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.storage_backend.storage_manager import StorageManager

    from eccache.ports.clock import Clock

R = TypeVar("R")
_REDIS_SCHEMES: Final = frozenset({"redis", "rediss", "unix"})
_REDIS_TIMEOUTS: Final = ("socket_timeout", "socket_connect_timeout")
_PLACES: Final = (
    "external_backends",
    "gds_path",
    "local_disk",
    "maru_path",
    "remote_storage_plugins",
    "remote_url",
    "storage_plugins",
)
_DISK_SIZE: Final = 64.0
"""GiB, as LMCache's encoder cache has it where only the path is given."""
_PROMETHEUS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


@attrs.frozen(kw_only=True)
class LMCacheSettings:
    """What an LMCache store is opened with.

    Attributes:
        model: the model's name; LMCache wants one, entries carry their own.
        keys: LMCache's configuration by its own names; what is missing has LMCache's default.
        pool_size: GiB of host memory for LMCache's pool, which it touches at once, unless *keys* has
            `max_local_cpu_size`. The largest entry must fit, and what is under way at a time.
        timeout_seconds: for one call of a backend.
        close_timeout_seconds: how long `close` waits.
    """

    model: str
    keys: Mapping[str, Any]
    pool_size: float
    timeout_seconds: float
    close_timeout_seconds: float


def names_a_place(keys: Mapping[str, Any]) -> bool:
    """Return whether *keys* name a place for entries, rather than only how LMCache is to work."""
    extra = keys.get("extra_config")
    if isinstance(extra, str):  # as an environment has it
        with contextlib.suppress(ValueError):
            extra = json.loads(extra)
    nixl = isinstance(extra, Mapping) and bool(extra.get("enable_nixl_storage"))
    return nixl or any(keys.get(name) for name in _PLACES)


def open_lmcache_store(settings: LMCacheSettings, clock: Clock) -> LMCacheStore:
    """Open LMCache's storage and return it as an entry store, which closes it.

    LMCache's memory holds no entries unless *settings* says `local_cpu`: it is where bytes pass through.

    Raises:
        ConfigError: LMCache is missing, or its configuration can't work.
    """
    storage = _in_daemon_thread(functools.partial(_open_storage, settings))
    store = LMCacheStore(
        storage,
        clock=clock,
        timeout_seconds=settings.timeout_seconds,
        close_timeout_seconds=settings.close_timeout_seconds,
        owns_storage=True,
    )
    if not store.backend_names:
        store.close()
        raise ConfigError(
            "LMCache has no place for entries.",
            remedy="set remote_url or another of its back ends; its host memory alone needs local_cpu.",
        )
    return store


def _open_storage(settings: LMCacheSettings) -> StorageManager:
    try:
        import torch
        from lmcache.v1.event_manager import EventManager
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.storage_manager import StorageManager
    except ImportError as error:
        raise ConfigError(
            f"LMCache can't be imported: {error}.",
            remedy="pip install --no-deps lmcache aiofile aiofiles caio redis sortedcontainers",
        ) from error
    config = _config(settings)
    # Shapes and dtype are those of KV caches, which an encoder cache has none of. The role is pinned: as a
    # scheduler, LMCache has no memory to read into.
    metadata = LMCacheMetadata(
        model_name=settings.model,
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.uint8,
        kv_shape=(1, 1, 256, 1, 1),
        role="worker",
    )
    before = os.environ.get(_PROMETHEUS_VARIABLE)
    storage = StorageManager(config, metadata, EventManager())
    if before is None:
        # LMCache sets it for the whole process and its children, which are not LMCache's.
        os.environ.pop(_PROMETHEUS_VARIABLE, None)
    _never_wait_for_memory(storage)
    return storage


def _config(settings: LMCacheSettings) -> LMCacheEngineConfig:
    from lmcache.v1.config import LMCacheEngineConfig

    keys = {"local_cpu": False, "max_local_cpu_size": settings.pool_size} | dict(settings.keys)
    if keys.get("local_disk") and not keys.get("max_local_disk_size"):
        keys["max_local_disk_size"] = _DISK_SIZE  # LMCache's own is 0, at which it uses no disk
    if isinstance(url := keys.get("remote_url"), str):
        keys["remote_url"] = with_timeouts(url, settings.timeout_seconds)
    try:
        config = LMCacheEngineConfig.from_dict(keys)
        config.validate()
    except Exception as error:
        raise ConfigError(
            f"LMCache does not accept its configuration: {type(error).__name__}: {error}.",
            remedy="correct the keys that are passed on to LMCache; `eccache doctor` lists them.",
        ) from error
    return config


def with_timeouts(url: str, timeout_seconds: float) -> str:
    """Return a Redis URL that has time limits; without, a frozen server holds LMCache's workers for ever."""
    parts = urlsplit(url)
    if parts.scheme not in _REDIS_SCHEMES:
        return url
    missing = [name for name in _REDIS_TIMEOUTS if name not in parse_qs(parts.query)]
    query = "&".join(
        filter(None, [parts.query, *(f"{name}={timeout_seconds:g}" for name in missing)])
    )
    # urlunsplit would leave out the slashes of a URL without a host, as that of a socket.
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}{fragment}"


def _never_wait_for_memory(storage: StorageManager) -> None:
    """Let LMCache's connectors fail where its pool is full, instead of waiting for room on the event loop.

    They wait by blocking the loop, on which what would make room is waiting too.
    """
    memory: Any = storage.storage_backends.get("LocalCPUBackend")
    if memory is not None:
        memory.allocate = functools.partial(memory.allocate, busy_loop=False)


def _in_daemon_thread(function: Callable[[], R]) -> R:
    """Call *function* in a thread whose own threads are daemons: they never keep a process from ending."""
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="eccache-lmcache-open", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
