"""Engines for tests: the real thing over any store."""

from __future__ import annotations

import torch

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.memory import MemoryStore
from eccache.adapters.torch import TorchFramework
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.engine import ECCacheEngine, EngineParts
from eccache.app.telemetry import LocalTelemetry
from eccache.app.writer import BackgroundWriter
from eccache.domain.entry_ref import EntryRef
from eccache.domain.namespace import Namespace
from eccache.ports.storage import EntryStore
from eccache.testing.clock import ManualClock

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


def flip_a_bit(store: MemoryStore, ref: EntryRef, bit: int) -> None:
    """Damage the entry of *ref* where it lies."""
    lease = store.get(ref)
    assert lease is not None
    lease._frame[bit // 8] ^= 1 << bit % 8  # noqa: SLF001 - damage comes from nowhere else
