"""A budget that holds, with buffers that are used again."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.buffers.pool import PooledBuffer


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 600)), max_size=60))
def test_the_budget_holds_whatever_is_acquired_and_released(
    steps: list[tuple[bool, int]],
) -> None:
    """Bytes in flight never pass the budget, except for one buffer that is alone."""
    allocator = PooledAllocator(1000)
    held: list[PooledBuffer] = []
    for take, number in steps:
        if take:
            expected = not held or sum(b.nbytes for b in held) + number <= 1000
            buffer = allocator.acquire(number, memory=number % 2 == 0)
            assert expected == (buffer is not None)
            if buffer is not None:
                held.append(buffer)
        elif held:
            held.pop(number % len(held)).release()
        assert sum(buffer.nbytes for buffer in held) == allocator.in_flight_nbytes


def test_one_buffer_above_the_budget_is_granted_alone() -> None:
    """An entry larger than the budget can still pass, by itself."""
    allocator = PooledAllocator(10)
    big = allocator.acquire(1000, memory=True)
    assert big is not None
    assert 1000 == len(big.memory)
    assert allocator.acquire(1, memory=False) is None
    big.release()
    assert allocator.acquire(1, memory=False) is not None


def test_a_released_buffer_serves_the_next_of_about_its_size() -> None:
    """Touched memory is worth keeping."""
    made: list[int] = []

    def make(nbytes: int) -> memoryview:
        made.append(nbytes)
        return memoryview(bytearray(nbytes))

    allocator = PooledAllocator(1 << 30, make)
    for nbytes in (1_000_000, 1_000_100, 999_500):
        buffer = allocator.acquire(nbytes, memory=True)
        assert buffer is not None
        assert nbytes == len(buffer.memory)
        buffer.release()
        buffer.release()
        assert 0 == len(buffer.memory)
    assert 1 == len(made)
    allocator.trim()
    assert allocator.acquire(1_000_000, memory=True) is not None
    assert 2 == len(made)


def test_a_system_without_memory_is_pressure() -> None:
    """Memory that can't be had is no error of the caller."""

    def none_left(nbytes: int) -> memoryview:
        raise MemoryError(nbytes)

    allocator = PooledAllocator(1 << 40, none_left)
    assert allocator.acquire(1000, memory=True) is None
    assert 0 == allocator.in_flight_nbytes


def test_threads_share_one_budget() -> None:
    """Acquiring and releasing from many threads leaves nothing charged."""
    allocator = PooledAllocator(1 << 20)

    def churn() -> None:
        for number in range(500):
            buffer = allocator.acquire(number * 97 % 70_000, memory=True)
            if buffer is not None:
                buffer.release()

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 == allocator.in_flight_nbytes


def test_a_forgotten_buffer_is_given_back() -> None:
    """A holder that was interrupted before it could release costs no budget; its memory is not shared."""
    allocator = PooledAllocator(100)
    forgotten = allocator.acquire(100, memory=True)
    assert forgotten is not None
    seen = forgotten.memory
    assert allocator.acquire(1, memory=True) is None
    with allocator._lock:  # noqa: SLF001 - whoever collects garbage may hold it, or a fork have left it
        del forgotten
    again = allocator.acquire(100, memory=True)
    assert again is not None
    assert again.memory.obj is not seen.obj
    again.release()
    del again
    assert 0 == allocator.in_flight_nbytes
