"""The composition root: the one place, beside the host entry points, that names concrete adapters."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.disabled import DisabledStore
from eccache.adapters.disk import (
    DiskMaintenance,
    DiskParts,
    DiskPolicy,
    DiskStore,
    Durability,
    Layout,
    described_namespaces,
    open_shared_memory_store,
    try_out,
)
from eccache.adapters.system import (
    SystemClock,
    SystemFiles,
    answers_by_itself,
    available_memory_nbytes,
)
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.config import CacheConfig
from eccache.app.engine import ECCacheEngine, EngineParts
from eccache.app.guard import guarded
from eccache.app.prompt_answers import PromptAnswers
from eccache.app.telemetry import LocalTelemetry
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.tiers.tiered_store import TieredStore
from eccache.app.writer import BackgroundWriter
from eccache.domain.dtypes import canonical_dtype
from eccache.domain.errors import StoreTimeout
from eccache.domain.namespace import Namespace
from eccache.ports.clock import Clock
from eccache.ports.host_framework import HostFramework
from eccache.ports.inspection import ServerFacts
from eccache.ports.maintenance import StoreMaintenance
from eccache.ports.storage import EntryStore
from eccache.ports.telemetry import Level, Telemetry

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def open_cache(
    config: CacheConfig,
    *,
    model: str,
    encoder_dtype: object,
    identity: Mapping[str, str] | None = None,
    store: EntryStore | None = None,
) -> ECCacheEngine[torch.Tensor]:
    """Open the cache of one model's encoder outputs, for torch tensors.

    Args:
        config: where entries live, and every bound.
        model: the model's name or path; part of every entry's name.
        encoder_dtype: dtype of the encoder's outputs, a name such as `"bfloat16"` or a `torch.dtype`;
            part of every entry's name.
        identity: whatever else must match for an entry to be reused, e.g. `{"revision": "abc"}`.
        store: a store built elsewhere; it is then left open by `close`. Default: what *config* says.

    Returns:
        The cache, a context manager. Entries of other processes with an equal *model*, *encoder_dtype*
        and *identity* are seen at once.

    Raises:
        ConfigError: the configuration can't work; says why, and what to do.
        ValueError: unknown dtype or empty model name.
        TypeError: *identity* is not a mapping of str to str.
    """
    from eccache.adapters.torch import TorchFramework, host_memory

    return open_engine(
        config,
        TorchFramework(),
        model=model,
        encoder_dtype=encoder_dtype,
        namespace=namespace_of(config, identity or {}),
        store=store,
        make_memory=host_memory,
    )


def open_engine(  # noqa: PLR0913 - the arguments of a composition are its parts
    config: CacheConfig,
    host: HostFramework[T],
    *,
    model: str,
    encoder_dtype: object,
    namespace: Namespace,
    store: EntryStore | None = None,
    make_memory: Callable[[int], memoryview] | None = None,
    telemetry: LocalTelemetry | None = None,
) -> ECCacheEngine[T]:
    """Open the cache for tensors of any framework.

    Args:
        config: where entries live, and every bound.
        host: the framework.
        model: the model's name or path.
        encoder_dtype: dtype of the encoder's outputs, as `find_dtype` takes it.
        namespace: what must match for reuse.
        store: a store built elsewhere, left open by `close`.
        make_memory: makes host memory for copies in flight, e.g. pinned.
        telemetry: takes counts and events; made if missing.

    Raises:
        ConfigError: the configuration can't work.
        ValueError: unknown dtype or empty model name.
    """
    clock = SystemClock()

    def parts(telemetry: LocalTelemetry, own: EntryStore) -> EngineParts[T]:
        allocator = (
            PooledAllocator(config.write_queue_nbytes, make_memory)
            if make_memory
            else PooledAllocator(config.write_queue_nbytes)
        )
        return EngineParts(
            store=own,
            closes_store=store is None,
            # Of a store that was built elsewhere nothing is known.
            prompt=_prompt_answers(own) if store is None else PromptAnswers(),
            host=host,
            allocator=allocator,
            telemetry=telemetry,
            clock=clock,
            writer=BackgroundWriter(config.writer_threads, allocator.trim),
            calls=BoundedCalls("eccache-store"),
            made_anew=parts_of_child,
        )

    def parts_of_child() -> EngineParts[T]:
        telemetry = LocalTelemetry(clock)
        if store is not None:
            return parts(telemetry, store)
        nothing: EntryStore = DisabledStore()  # it is too late to stop a start
        own = guarded(
            telemetry, "fork", lambda: open_store(config, namespace, clock, telemetry), nothing
        )
        return parts(telemetry, own)

    telemetry = telemetry or LocalTelemetry(clock)
    own = open_store(config, namespace, clock, telemetry) if store is None else store
    engine = ECCacheEngine(
        parts(telemetry, own),
        namespace=namespace,
        model=model,
        encoder_dtype=canonical_dtype(encoder_dtype),
        store_timeout_seconds=config.store_timeout_seconds,
        close_timeout_seconds=config.close_timeout_seconds,
    )
    engine.ref("")  # a model name that can't be one is found now, not at the first put
    return engine


def namespace_of(config: CacheConfig, identity: Mapping[str, str]) -> Namespace:
    """Return the namespace of *identity* in the epoch that the operator configured.

    An ingredient that the operator waived is there, and empty: whoever waives it shares with those who do.

    Raises:
        TypeError: *identity* is not a mapping of str to str.
    """
    waived = {"vllm": config.ignore_vllm_version, "encoder_split": config.ignore_encoder_split}
    empty = {name: "" for name, waives in waived.items() if waives and name in identity}
    epoch = {"epoch": config.epoch} if config.epoch else {}
    return Namespace.from_ingredients({**identity, **empty, **epoch})


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
    local = store.local if isinstance(store, TieredStore) else store
    return isinstance(local, DisabledStore) or (
        isinstance(local, DiskStore) and answers_by_itself(local.root)
    )


def _prompt_answers(store: EntryStore) -> PromptAnswers:
    tiered = isinstance(store, TieredStore)
    local = store.local if isinstance(store, TieredStore) else store
    if isinstance(local, DiskStore) and waits_for_nobody(local):
        return PromptAnswers(local, alone=not tiered)
    return PromptAnswers()


def _lmcache_tier(config: CacheConfig, clock: Clock, telemetry: Telemetry) -> RemoteTier | None:
    from eccache.adapters.lmcache import LMCacheSettings, names_a_place, open_lmcache_store

    if not names_a_place(config.lmcache):
        return None
    settings = LMCacheSettings(
        model="eccache",  # for LMCache's labels; entries carry their own model's name
        keys=config.lmcache,
        pool_size=config.lmcache_pool_size,
        timeout_seconds=config.store_timeout_seconds,
        close_timeout_seconds=config.close_timeout_seconds,
    )
    return RemoteTier(
        "lmcache",
        functools.partial(open_lmcache_store, settings, clock),
        timeout_seconds=config.store_timeout_seconds,
        clock=clock,
        telemetry=telemetry,
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
    policy = _disk_policy(config)
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


def _disk_policy(config: CacheConfig) -> DiskPolicy:
    return DiskPolicy(
        capacity_nbytes=config.max_local_disk_nbytes,
        free_space_ratio=config.min_free_space_ratio,
        durability=Durability(config.durability),
        shared_group=config.shared_group,
    )


def shared_memory_root() -> str:
    """Return the directory of the store without a disk: in memory, shared by one user's processes."""
    return f"/dev/shm/eccache-{os.geteuid()}"  # noqa: S108 - its owner and mode are checked


# --- what the operator's commands reach --------------------------------------------------------------


def operator_root(config: CacheConfig) -> str:
    """Return the directory that holds the entries of *config*, on disk or in shared memory."""
    return config.local_disk or shared_memory_root()


def memory_available_nbytes() -> int | None:
    """Return what this process may still use of the host's memory; None: unknown."""
    return available_memory_nbytes()


def stored_nbytes(root: str, config: CacheConfig) -> int:
    """Return the physical bytes that are under *root* already, as its accounting has them."""
    try:
        usage = _disk_parts(root, config).accounting.peek()
    except OSError:
        return 0
    return 0 if usage is None else sum(usage.nbytes)


def open_maintenance(root: str, config: CacheConfig, *, keeps_cap: bool) -> StoreMaintenance:
    """Return what an operator may ask of the store at *root*, which is not made.

    Args:
        root: directory of the entries.
        config: modes and bounds of the servers that use it.
        keeps_cap: whether the configured cap is theirs, so that what is above it may be evicted.

    Raises:
        ConfigError: there is no store.
    """
    return DiskMaintenance(_disk_parts(root, config), keeps_cap=keeps_cap)


def _disk_parts(root: str, config: CacheConfig) -> DiskParts:
    clock = SystemClock()
    policy = _disk_policy(config)
    if config.local_disk is None:
        policy = attrs.evolve(policy, capacity_nbytes=config.max_local_cpu_nbytes)
    return DiskParts.assemble(
        root,
        policy=policy,
        files=SystemFiles(),
        clock=clock,
        telemetry=LocalTelemetry(clock),
    )


def stored_namespaces(root: str) -> tuple[Namespace, ...]:
    """Return every namespace that has entries under *root*; none where it can't be looked at."""
    try:
        return tuple(described_namespaces(SystemFiles(), Layout(root)))
    except OSError:
        return ()


def try_out_root(root: str, config: CacheConfig) -> None:
    """Store, read, verify and remove a small entry under *root*, which exists.

    Nothing gives way to it: the cap need not be the servers', and a full store is as it should be.

    Raises:
        ConfigError: the root can't be used.
        StoreFault: a step failed.
    """
    clock, files = SystemClock(), SystemFiles()
    store = DiskStore(
        root,
        policy=attrs.evolve(
            _disk_policy(config), capacity_nbytes=sys.maxsize, free_space_ratio=0, evicts=False
        ),
        files=files,
        clock=clock,
        telemetry=LocalTelemetry(clock, "eccache.self_test"),
    )
    try_out(root, store, files)


def inspect_vllm(arguments: Sequence[str]) -> ServerFacts:
    """Return what vLLM would make of the arguments of `vllm serve`.

    Raises:
        ConfigError: vLLM is not installed, or does not accept them.
    """
    from eccache.adapters.vllm.inspection import inspect_server

    return inspect_server(arguments)
