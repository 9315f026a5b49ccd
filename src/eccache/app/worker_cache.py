"""The worker's side of a promise: copies become tensors, tensors become entries."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Generic, TypeVar

import attrs

from eccache.app.engine import ECCacheEngine
from eccache.app.guard import guarded
from eccache.app.telemetry import LocalTelemetry
from eccache.domain.entry_format import open_verified
from eccache.ports.clock import Clock
from eccache.ports.host_framework import HostFramework
from eccache.ports.lookup import PromisedLoad, WorkerReport
from eccache.ports.shared_copy import SharedCopies
from eccache.ports.telemetry import Level

T = TypeVar("T")


class EngineWorkerCache(Generic[T]):
    """Implements `ports.lookup.WorkerCache` over an engine. Used by one thread.

    Args:
        engine: stores what is saved; closed with this.
        host: builds tensors.
        copies: maps promised copies.
        clock: for `load_seconds`.
        telemetry: the engine's, whose counts become the reports.
    """

    def __init__(
        self,
        engine: ECCacheEngine[T],
        host: HostFramework[T],
        copies: SharedCopies,
        clock: Clock,
        telemetry: LocalTelemetry,
    ) -> None:
        self._engine = engine
        self._host = host
        self._copies = copies
        self._clock = clock
        self._telemetry = telemetry
        self._acks: Counter[int] = Counter()

    def load(self, loads: Iterable[PromisedLoad], device: str) -> dict[str, T]:
        """Return the tensors of *loads* by mm_hash, each acknowledged in the next report.

        One that can't be built is left out and counted as a broken promise: the framework has no
        encoder output then and no way to make one.
        """
        started = self._clock.monotonic()
        built: dict[str, T] = {}
        for load in loads:
            build = functools.partial(self._build, load, device)
            tensor = guarded(self._telemetry, "load", build, None)
            self._acks[load.promise_id] += 1
            if tensor is None:
                self._telemetry.count("broken_promises")
                self._telemetry.event(
                    Level.WARNING, "worker.promise.broken", mm_hash=load.mm_hash[:80], pid=load.pid
                )
            else:
                built[load.mm_hash] = tensor
        self._telemetry.count("loads", len(built))
        self._telemetry.observe("load_seconds", self._clock.monotonic() - started)
        return built

    def save(self, mm_hash: str, tensor: T) -> None:
        """Store *tensor* in the background; it must not change from now on."""
        guarded(
            self._telemetry,
            "save",
            lambda: self._engine.put(mm_hash, tensor, borrow=True),
            otherwise=True,
        )

    def take_report(self) -> WorkerReport | None:
        """Return what was done since the last call; None if that is nothing."""
        counted = self._telemetry.take_report()
        if not self._acks:
            return counted
        acks, self._acks = dict(self._acks), Counter()
        return attrs.evolve(counted or WorkerReport(), acks=acks)

    def close(self) -> None:
        """Wait for accepted saves while they make progress, then give everything back. Idempotent."""
        self._engine.close()

    def _build(self, load: PromisedLoad, device: str) -> T:
        """Build the tensor of one copy, which its maker has verified and sealed."""
        frame = self._copies.map(load.pid, load.fd, load.nbytes)
        header = open_verified(frame, None, verified=True)
        return self._host.build(header.spec, frame[header.block_nbytes :], device)
