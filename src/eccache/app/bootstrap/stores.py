"""Which stores a configuration means, and opening them."""

from __future__ import annotations

import functools
import os
import tempfile
from typing import TYPE_CHECKING

import attrs

from eccache.adapters.disabled import DisabledStore
from eccache.adapters.disk import DiskPolicy, DiskStore, Durability, open_shared_memory_store
from eccache.adapters.system import SystemFiles, answers_by_itself, available_memory_nbytes
from eccache.app.amounts import shown_bytes
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.config import CacheConfig
from eccache.app.prompt_answers import PromptAnswers
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.tiers.tiered_store import TieredStore
from eccache.domain.errors import StoreTimeout
from eccache.domain.namespace import Namespace
from eccache.ports.clock import Clock
from eccache.ports.storage import EntryStore
from eccache.ports.telemetry import Level, Telemetry

if TYPE_CHECKING:
    from eccache.adapters.lmcache import LMCacheSettings


def open_store(
    config: CacheConfig, namespace: Namespace, clock: Clock, telemetry: Telemetry
) -> EntryStore:
    """Open the store that *config* names: a directory on disk, else one in the host's memory.

    Behind it stands LMCache as a remote tier where *config* has keys that name a place for it. What
    fails there is a warning and misses; if it takes long to open, it is opened in the background. A local
    place that never answers is a warning and misses too.

    Raises:
        ConfigError: the local place can't be used.
    """
    if not config.enabled:
        return DisabledStore()
    local = _open_local_store_in_time(config, namespace, clock, telemetry)
    tier = _lmcache_tier(config, clock, telemetry) if config.lmcache else None
    if tier is None:
        return local
    tier.open_in_background()
    # A server that is healthy before its remote tier is would not be warm at its first request.
    tier.wait_until_tried(config.tier_open_timeout_seconds)
    return TieredStore(
        local,
        [tier],
        telemetry=telemetry,
        close_timeout_seconds=config.close_timeout_seconds,
        max_held_nbytes=config.write_queue_nbytes,
    )


def waits_for_nobody(store: EntryStore) -> bool:
    """Return whether the local part of *store*, opened by `open_store`, is asked for a name without waiting.

    So it is on this machine's own file systems: a name is looked up in memory, or at worst on a disk without
    which the machine does not work either.
    """
    local = _local_part(store)
    return isinstance(local, DisabledStore) or (
        isinstance(local, DiskStore) and answers_by_itself(local.root)
    )


def prompt_answers(store: EntryStore) -> PromptAnswers:
    """Return what *store*, opened by `open_store`, tells on the caller's own thread."""
    local = _local_part(store)
    if isinstance(local, DiskStore) and waits_for_nobody(local):
        return PromptAnswers(local, alone=local is store)
    return PromptAnswers()


def described_place(store: EntryStore) -> dict[str, str]:
    """Return what an operator wants to know of where *store*, opened by `open_store`, keeps entries.

    Nothing where it keeps none, which was said already.
    """
    local = _local_part(store)
    if not isinstance(local, DiskStore):
        return {}
    return {"store": local.root, "cap": shown_bytes(local.capacity_nbytes)}


def _local_part(store: EntryStore) -> EntryStore:
    return store.local if isinstance(store, TieredStore) else store


def _lmcache_tier(config: CacheConfig, clock: Clock, telemetry: Telemetry) -> RemoteTier | None:
    from eccache.adapters.lmcache import names_a_place, open_lmcache_store

    if not names_a_place(config.lmcache):
        return None
    settings = lmcache_settings(config)
    return RemoteTier(
        "lmcache",
        functools.partial(open_lmcache_store, settings, clock),
        timeout_seconds=config.store_timeout_seconds,
        clock=clock,
        telemetry=telemetry,
    )


def lmcache_settings(config: CacheConfig) -> LMCacheSettings:
    """Return what the tier of LMCache is opened with."""
    from eccache.adapters.lmcache import LMCacheSettings

    return LMCacheSettings(
        model="eccache",  # for LMCache's labels; entries carry their own model's name
        keys=config.lmcache,
        pool_size=config.lmcache_pool_size,
        timeout_seconds=config.store_timeout_seconds,
        close_timeout_seconds=config.close_timeout_seconds,
    )


def _open_local_store_in_time(
    config: CacheConfig, namespace: Namespace, clock: Clock, telemetry: Telemetry
) -> EntryStore:
    """Open the local store, or do without it where its file system hangs."""
    calls = BoundedCalls("eccache-opening")
    try:
        return calls.call(
            lambda: _open_local_store(config, namespace, clock, telemetry),
            config.tier_open_timeout_seconds,
        )
    except StoreTimeout as timeout:
        telemetry.event(
            Level.WARNING,
            "store.root.hangs",
            root=operator_root(config),
            cause=str(timeout),
            remedy="look whether the directory's file system answers, then restart; until then all is a miss",
        )
        return DisabledStore()
    finally:
        calls.close()


def _open_local_store(
    config: CacheConfig, namespace: Namespace, clock: Clock, telemetry: Telemetry
) -> EntryStore:
    policy = disk_policy(config)
    files = SystemFiles()
    if config.local_disk is None:
        root = shared_memory_root()
        return open_shared_memory_store(
            (root, f"{tempfile.gettempdir()}/{root.rpartition('/')[2]}"),
            policy=attrs.evolve(policy, capacity_nbytes=config.max_local_cpu_nbytes),
            files=files,
            clock=clock,
            telemetry=telemetry,
            available_nbytes=available_memory_nbytes(),
            namespace=namespace,
        )
    return DiskStore(
        config.local_disk,
        policy=policy,
        files=files,
        clock=clock,
        telemetry=telemetry,
        namespace=namespace,
    )


def disk_policy(config: CacheConfig) -> DiskPolicy:
    """Return the bounds and modes of a store on disk."""
    return DiskPolicy(
        capacity_nbytes=config.max_local_disk_nbytes,
        free_space_ratio=config.min_free_space_ratio,
        durability=Durability(config.durability),
        shared_group=config.shared_group,
    )


def shared_memory_root() -> str:
    """Return the directory of the store without a disk: in memory, shared by one user's processes."""
    return f"/dev/shm/eccache-{os.geteuid()}"  # noqa: S108 - its owner and mode are checked


def operator_root(config: CacheConfig) -> str:
    """Return the directory that holds the entries of *config*, on disk or in shared memory."""
    return config.local_disk or shared_memory_root()
