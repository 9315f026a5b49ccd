"""What the operator's commands reach of a store and of its host."""

from __future__ import annotations

import sys

import attrs

from eccache.adapters.disk import (
    DiskMaintenance,
    DiskParts,
    DiskStore,
    Layout,
    described_namespaces,
    leaving_no_trace,
    try_out,
)
from eccache.adapters.system import SystemClock, SystemFiles, available_memory_nbytes
from eccache.app.bootstrap.stores import disk_policy
from eccache.app.config import CacheConfig
from eccache.app.telemetry import LocalTelemetry
from eccache.domain.namespace import Namespace
from eccache.ports.maintenance import StoreMaintenance


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
    policy = disk_policy(config)
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
    with leaving_no_trace(root, files):
        store = DiskStore(
            root,
            policy=attrs.evolve(
                disk_policy(config), capacity_nbytes=sys.maxsize, free_space_ratio=0, evicts=False
            ),
            files=files,
            clock=clock,
            telemetry=LocalTelemetry(clock, "eccache.self_test"),
        )
        try_out(root, store, files)
