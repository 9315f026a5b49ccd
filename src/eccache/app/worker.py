"""The worker's side: promised copies become tensors, tensors become entries."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import attrs

from eccache.app.guard import guarded
from eccache.domain.entry_format import open_verified
from eccache.ports.clock import Clock
from eccache.ports.host_framework import HostFramework
from eccache.ports.lookup import PermittedSave, PromisedLoad, WorkerReport
from eccache.ports.shared_copy import SharedCopies
from eccache.ports.telemetry import Level, Telemetry

T = TypeVar("T")


class ReportedTelemetry(Telemetry, Protocol):
    """Telemetry whose counts can be taken out, to travel to the scheduler."""

    def take_report(self) -> WorkerReport | None:
        """Return what was counted and observed since the last call; None if nothing."""
        ...


class CacheWorker(Generic[T]):
    """Implements `ports.lookup.WorkerCache`. Used by one thread.

    Args:
        copies: maps promised copies.
        host: makes tensors of bytes.
        put: stores a tensor in the background; False if it was not accepted.
        close: waits for accepted puts up to a deadline, and gives everything back.
        clock: for `load_seconds`.
        telemetry: takes `loads`, `bytes_loaded`, `broken_promises`, and whatever *put* counts.
    """

    def __init__(
        self,
        *,
        copies: SharedCopies,
        host: HostFramework[T],
        put: Callable[[PermittedSave, T], bool],
        close: Callable[[], None],
        clock: Clock,
        telemetry: ReportedTelemetry,
    ) -> None:
        self._copies = copies
        self._host = host
        self._put = put
        self._close = close
        self._clock = clock
        self._telemetry = telemetry
        self._acks: Counter[int] = Counter()
        self._dtypes: set[str] = set()
        self._made: frozenset[str] = frozenset()

    def load(self, loads: Iterable[PromisedLoad], device: str) -> dict[str, T]:
        """Return the tensors of *loads* by mm_hash, on *device*; each is acknowledged in the next report.

        A copy was verified by the scheduler's side and can't have changed since, so it is not hashed
        again; its header is parsed. The acknowledgement may reach the scheduler before a device has
        read the bytes: the mapping keeps them.
        """
        started = self._clock.monotonic()
        tensors: dict[str, T] = {}
        for load in loads:
            built = guarded(
                self._telemetry, "load", functools.partial(self._built, load, device), None
            )
            self._acks[load.promise_id] += 1
            if built is None:
                self._telemetry.count("broken_promises")
                self._telemetry.event(
                    Level.WARNING, "worker.promise.broken", mm_hash=load.mm_hash[:80]
                )
            else:
                tensors[load.mm_hash] = built[0]
                self._telemetry.count("loads")
                self._telemetry.count("bytes_loaded", load.nbytes)
        self._telemetry.observe("load_seconds", self._clock.monotonic() - started)
        return tensors

    def save(self, permitted: PermittedSave, tensor: T) -> None:
        """Store *tensor* as what is *permitted*, in the background; it must not change from now on."""
        guarded(self._telemetry, "save", lambda: self._save(permitted, tensor), otherwise=False)

    def take_report(self) -> WorkerReport | None:
        """Return what was done since the last call; None if that is nothing."""
        acks, self._acks = dict(self._acks), Counter()
        made, self._made = self._made, frozenset()
        counted = self._telemetry.take_report()
        if not acks and not made:
            return counted
        return attrs.evolve(counted or WorkerReport(), acks=acks, made=made)

    def close(self) -> None:
        """Wait for accepted saves up to a deadline, then give everything back. Idempotent."""
        guarded(self._telemetry, "close", self._close, None)

    def _save(self, permitted: PermittedSave, tensor: T) -> bool:
        accepted = self._put(permitted, tensor)
        dtype = self._host.spec(tensor).dtype
        if dtype not in self._dtypes:
            self._dtypes.add(dtype)
            self._made |= {dtype}
        return accepted

    def _built(self, load: PromisedLoad, device: str) -> tuple[T]:
        frame = self._copies.map(load.pid, load.fd, load.nbytes)
        header = open_verified(frame, None, verified=True)
        return (self._host.build(header.spec, frame[header.block_nbytes :], device),)
