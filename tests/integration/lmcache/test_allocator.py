"""Memory from LMCache's pool is a budget like any other, and every reference comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eccache.adapters.lmcache import LMCacheAllocator, LMCacheStore
from tests.integration.lmcache.stores import open_store, storage_of, used_nbytes

POOL_NBYTES = 16 << 20
BUDGET_NBYTES = 12 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LMCacheStore]:
    """Whoever owns the pool."""
    store = open_store(local_disk=str(tmp_path), pool_size=POOL_NBYTES / (1 << 30))
    yield store
    store.close()


@pytest.fixture
def allocator(store: LMCacheStore) -> LMCacheAllocator:
    """An allocator with a budget below the pool."""
    return LMCacheAllocator(storage_of(store), BUDGET_NBYTES)


def test_memory_is_writable_bytes_of_the_pool(
    store: LMCacheStore, allocator: LMCacheAllocator
) -> None:
    """As many as were asked for, LMCache's own."""
    buffer = allocator.acquire(5000, memory=True)
    assert buffer is not None
    assert buffer.memory is not None
    assert (5000, "B", 1, False) == (
        buffer.memory.nbytes,
        buffer.memory.format,
        buffer.memory.ndim,
        buffer.memory.readonly,
    )
    buffer.memory[:] = bytes(5000)
    assert 5000 == buffer.nbytes == allocator.in_flight_nbytes
    assert used_nbytes(storage_of(store)) >= 5000
    buffer.release()
    assert (0, 0) == (allocator.in_flight_nbytes, used_nbytes(storage_of(store)))


def test_release_gives_back_once(store: LMCacheStore, allocator: LMCacheAllocator) -> None:
    """By whichever thread, however often."""
    buffer = allocator.acquire(5000, memory=True)
    other = allocator.acquire(7000, memory=True)
    assert buffer is not None
    assert other is not None
    threads = [threading.Thread(target=buffer.release) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 7000 == allocator.in_flight_nbytes
    assert buffer.memory is None
    other.release()
    assert 0 == used_nbytes(storage_of(store))


def test_a_budget_alone_takes_no_memory(store: LMCacheStore, allocator: LMCacheAllocator) -> None:
    """Bytes that somebody else holds are charged and not allocated."""
    buffer = allocator.acquire(BUDGET_NBYTES, memory=False)
    assert buffer is not None
    assert buffer.memory is None
    assert 0 == used_nbytes(storage_of(store))
    assert allocator.acquire(1, memory=True) is None
    buffer.release()
    assert 0 == allocator.in_flight_nbytes


def test_the_budget_and_the_pool_are_bounds(
    store: LMCacheStore, allocator: LMCacheAllocator
) -> None:
    """None under pressure of either, and what was charged for nothing is credited."""
    first = allocator.acquire(8 << 20, memory=True)
    assert first is not None
    assert allocator.acquire(5 << 20, memory=True) is None
    assert 8 << 20 == allocator.in_flight_nbytes
    first.release()
    small = allocator.acquire(1, memory=True)
    taken = storage_of(store)
    hog = LMCacheAllocator(taken, POOL_NBYTES).acquire(10 << 20, memory=True)
    assert small is not None
    assert hog is not None
    assert allocator.acquire(8 << 20, memory=True) is None
    assert 1 == allocator.in_flight_nbytes
    hog.release()
    small.release()
    assert 0 == used_nbytes(taken)


def test_any_single_entry_can_pass(store: LMCacheStore, allocator: LMCacheAllocator) -> None:
    """What is larger than budget and pool gets ordinary memory while nothing else is in flight."""
    buffer = allocator.acquire(POOL_NBYTES + 1, memory=True)
    assert buffer is not None
    assert buffer.memory is not None
    assert POOL_NBYTES + 1 == buffer.memory.nbytes
    assert allocator.acquire(1, memory=False) is None
    buffer.release()
    assert (0, 0) == (allocator.in_flight_nbytes, used_nbytes(storage_of(store)))


def test_nothing_is_a_buffer_too(allocator: LMCacheAllocator) -> None:
    """A tensor of zero rows passes like any other."""
    buffer = allocator.acquire(0, memory=True)
    assert buffer is not None
    assert buffer.memory is not None
    assert 0 == buffer.memory.nbytes
    buffer.release()


def test_a_failed_allocation_charges_nothing(
    allocator: LMCacheAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever LMCache raises, the budget is as before."""

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(allocator._storage, "allocate", broken)  # noqa: SLF001 - LMCache's side
    with pytest.raises(MemoryError):
        allocator.acquire(100, memory=True)
    assert 0 == allocator.in_flight_nbytes
