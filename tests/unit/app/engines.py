"""Engines for tests: the real thing over any store."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.memory import MemoryStore
from eccache.adapters.torch import TorchFramework
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.engine import ECCacheEngine, EngineParts
from eccache.app.telemetry import LocalTelemetry
from eccache.app.writer import BackgroundWriter
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryInfo, EntryStore, ReadLease, StoreStats
from tests.unit.app.clock import ManualClock

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
LONG = 30.0


def memory_store(capacity_nbytes: int = 1 << 24) -> MemoryStore:
    """The reference store."""
    return MemoryStore(capacity_nbytes=capacity_nbytes, clock=ManualClock())


def engine_over(
    store: EntryStore,
    *,
    closes_store: bool = True,
    budget_nbytes: int = 1 << 24,
    timeout_seconds: float = LONG,
    revision: str = "a",
    dtype: str = "bfloat16",
) -> ECCacheEngine[torch.Tensor]:
    """A whole engine over *store*."""
    clock = ManualClock()
    allocator = PooledAllocator(budget_nbytes)
    parts = EngineParts(
        store=store,
        closes_store=closes_store,
        host=TorchFramework(),
        allocator=allocator,
        telemetry=LocalTelemetry(clock, "eccache.test"),
        clock=clock,
        writer=BackgroundWriter(1, allocator.trim),
        calls=BoundedCalls("eccache-test", max_lost=1),
    )
    return ECCacheEngine(
        parts,
        namespace=Namespace.from_ingredients({"revision": revision}),
        model=MODEL,
        encoder_dtype=dtype,
        store_timeout_seconds=timeout_seconds,
        close_timeout_seconds=timeout_seconds,
    )


class WrappedStore:
    """Passes everything on to another store; a test overrides what it wants to go wrong."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store

    def contains(self, ref: EntryRef) -> bool:
        """Pass on."""
        return self.store.contains(ref)

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Pass on."""
        return self.store.get(ref, deadline=deadline)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Pass on."""
        return self.store.put(ref, frame)

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Pass on."""
        return self.store.remove(ref, reason)

    def entries(self) -> Iterator[EntryInfo]:
        """Pass on."""
        return self.store.entries()

    def stats(self) -> StoreStats:
        """Pass on."""
        return self.store.stats()

    def close(self) -> None:
        """Pass on."""
        self.store.close()


def flip_a_bit(store: MemoryStore, ref: EntryRef, bit: int) -> None:
    """Damage the entry of *ref* where it lies."""
    lease = store.get(ref)
    assert lease is not None
    lease._frame[bit // 8] ^= 1 << bit % 8  # noqa: SLF001 - damage comes from nowhere else
