"""A Redis that dies, freezes, forgets or lies costs faults within their time, and is found again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from eccache.adapters.lmcache import LMCacheStore
from eccache.adapters.lmcache.keys import cache_key
from eccache.adapters.lmcache.loop_calls import MAX_UNANSWERED
from eccache.domain.entry_format import FrameError
from eccache.domain.errors import StoreFault, StoreTimeout
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.frames import frame_bytes, frame_of, is_intact, ref_of
from tests.integration.lmcache.redis_server import RedisServer
from tests.integration.lmcache.stores import open_store, storage_of, used_nbytes

REF = ref_of("an input")
LIMIT_SECONDS = 0.5


@pytest.fixture
def store(own_redis: RedisServer) -> Iterator[LMCacheStore]:
    """A store on a Redis of its own, with short time limits, that holds one entry."""
    store = open_store(
        remote_url=own_redis.url, timeout_seconds=LIMIT_SECONDS, close_timeout_seconds=5
    )
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    yield store
    store.close()


def value_name(part: str) -> str:
    """Redis's name of a part of the entry."""
    key = cache_key(REF)
    assert key is not None
    return f"{key.to_string()}{part}"


def holds(store: LMCacheStore) -> bool:
    """Whether the entry is served, bit for bit."""
    lease = store.get(REF)
    return lease is not None and frame_bytes(frame_of(REF)) == bytes(lease.view())


def test_a_dead_redis_is_a_fault_and_a_new_one_is_found(
    store: LMCacheStore, own_redis: RedisServer
) -> None:
    """A miss means that Redis was asked; and nothing has to be restarted when it is back."""
    own_redis.kill()
    with pytest.raises(StoreFault):
        store.get(REF)
    with pytest.raises(StoreFault):
        store.put(ref_of("another"), frame_of(ref_of("another")))
    assert not store.contains(REF)
    own_redis.start()
    assert store.get(REF) is None
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    assert holds(store)


def test_a_redis_that_is_down_at_first_is_found_later(own_redis: RedisServer) -> None:
    """A server may start before its Redis."""
    own_redis.kill()
    store = open_store(remote_url=own_redis.url, timeout_seconds=LIMIT_SECONDS)
    with pytest.raises(StoreFault):
        store.get(REF)
    own_redis.start()
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    store.close()


def test_a_frozen_redis_costs_its_time_limit_and_no_more(
    store: LMCacheStore, own_redis: RedisServer
) -> None:
    """Each call ends in time; after some that hang, further ones end at once; then all is as before."""
    own_redis.freeze()
    started = time.monotonic()
    for _ in range(2 * MAX_UNANSWERED):
        with pytest.raises(StoreFault):
            store.get(REF)
    assert time.monotonic() - started < (MAX_UNANSWERED + 2) * 2 * LIMIT_SECONDS + 5
    own_redis.thaw()
    wait_for(lambda: answers(store))
    assert holds(store)
    assert PutOutcome.STORED is store.put(ref_of("b"), frame_of(ref_of("b")))
    assert 0 == used_nbytes(storage_of(store))


def test_a_frozen_redis_does_not_hold_up_close(store: LMCacheStore, own_redis: RedisServer) -> None:
    """`close` ends in its time."""
    own_redis.freeze()
    with pytest.raises(StoreFault):
        store.get(REF)
    storage = storage_of(store)
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 10
    assert not storage.thread.is_alive()
    assert storage.loop.is_closed()


def test_a_redis_connection_has_time_limits(store: LMCacheStore) -> None:
    """The user's URL has none."""
    url = storage_of(store).config.remote_url
    assert f"socket_timeout={LIMIT_SECONDS}&socket_connect_timeout={LIMIT_SECONDS}" in url


def test_a_redis_connection_is_closed(store: LMCacheStore) -> None:
    """LMCache's connector waits for its own event loop there, for ever."""
    storage = storage_of(store)
    store.close()
    assert not storage.thread.is_alive()
    assert storage.loop.is_closed()


def test_a_hundred_truncated_values_cost_no_buffer(redis_server: RedisServer) -> None:
    """LMCache loses a buffer of its pool with each, until the pool is gone and everything hangs."""
    store = open_store(remote_url=redis_server.url, timeout_seconds=30)
    large = frame_of(REF, rows=8192, width=1024)  # 16 MiB in a pool of 128
    store.put(REF, large)
    redis_server.client().set(value_name("kv_bytes"), b"short")
    for _ in range(100):
        with pytest.raises(StoreFault):
            store.get(REF)
    assert 0 == used_nbytes(storage_of(store))
    assert PutOutcome.STORED is store.put(REF, large)
    lease = store.get(REF)
    assert lease is not None
    assert is_intact(lease.view(), REF)
    store.close()


@pytest.mark.parametrize("part", ["kv_bytes", "metadata"])
def test_half_an_entry_is_a_miss(store: LMCacheStore, own_redis: RedisServer, part: str) -> None:
    """Redis evicts one of an entry's two values: a miss, and room for the next put."""
    own_redis.client().delete(value_name(part))
    assert store.get(REF) is None
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    assert holds(store)


def test_a_flipped_value_is_found_by_whoever_verifies(
    store: LMCacheStore, own_redis: RedisServer
) -> None:
    """And is replaced by the next put."""
    client = own_redis.client()
    frame = bytearray(frame_bytes(frame_of(REF)))
    frame[-1] ^= 1
    client.set(value_name("kv_bytes"), bytes(frame))
    lease = store.get(REF)
    assert lease is not None
    with pytest.raises(FrameError):
        is_intact(lease.view(), REF)
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    assert holds(store)


@pytest.mark.parametrize("metadata", [b"", b"x" * 28, b"\xff" * 28, b"\0" * 28, b"\x7f" * 280])
def test_metadata_that_makes_no_sense_is_no_entry(
    store: LMCacheStore, own_redis: RedisServer, metadata: bytes
) -> None:
    """Whatever LMCache makes of it, it is a fault or a frame that does not verify; nothing is lost."""
    own_redis.client().set(value_name("metadata"), metadata)
    for _ in range(20):
        try:
            lease = store.get(REF)
        except StoreFault:
            continue
        if lease is not None:
            with pytest.raises(FrameError):
                is_intact(lease.view(), REF)
    assert 0 == used_nbytes(storage_of(store))
    assert PutOutcome.STORED is store.put(REF, frame_of(REF))
    assert holds(store)


def test_reads_that_do_not_fit_the_pool_fail_and_nothing_hangs(own_redis: RedisServer) -> None:
    """LMCache waits for room on the one thread that could make room. Ours fail, and later ones succeed."""
    store = open_store(remote_url=own_redis.url, pool_size=1 / 32)  # 32 MiB
    refs = [ref_of(f"input {number}") for number in range(8)]
    for ref in refs:
        assert PutOutcome.STORED is store.put(ref, frame_of(ref, rows=7168, width=1024))  # 14 MiB
    outcomes: list[object] = []

    def read(number: int) -> None:
        try:
            outcomes.append(store.get(refs[number % 8]))
        except StoreFault as fault:
            outcomes.append(fault)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 24 == len(outcomes)
    assert any(not isinstance(outcome, StoreFault) for outcome in outcomes)
    assert None not in outcomes  # all are there: a read without room is a fault and not a miss
    assert not any(isinstance(outcome, StoreTimeout) for outcome in outcomes)
    lease = store.get(refs[0])
    assert lease is not None
    assert is_intact(lease.view(), refs[0])
    assert 0 == used_nbytes(storage_of(store))
    store.close()


def test_a_removal_that_the_connector_can_not_do_is_done_in_redis(
    store: LMCacheStore, own_redis: RedisServer
) -> None:
    """LMCache's Redis connector removes nothing; both values are gone all the same."""
    assert store.remove(REF, RemoveReason.REMOVED)
    assert [] == list(own_redis.client().scan_iter())


PROGRAM = """
import sys
from tests.integration.lmcache.stores import open_store
from eccache.testing.frames import frame_of, ref_of
store = open_store(remote_url=sys.argv[1], timeout_seconds=0.5, close_timeout_seconds=2)
store.put(ref_of("a"), frame_of(ref_of("a")))
if sys.argv[2] == "close":
    store.close()
if sys.argv[2] == "raise":
    raise SystemExit(3)
print("end", flush=True)
"""


@pytest.mark.parametrize(("how", "code"), [("close", 0), ("forget", 0), ("raise", 3)])
def test_a_process_ends(redis_server: RedisServer, how: str, code: int) -> None:
    """With or without `close`: LMCache's threads keep no process from ending."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, redis_server.url, how],
        cwd=Path(__file__).parents[3],
        timeout=60,
        check=False,
    )
    assert code == done.returncode


def answers(store: LMCacheStore) -> bool:
    """Whether *store* gets an answer."""
    try:
        store.get(REF)
    except (StoreFault, redis.RedisError):
        return False
    return True


def wait_for(condition: object, limit_seconds: float = 20.0) -> None:
    """Ask until it is so: what is waited for happens in LMCache's own threads."""
    deadline = time.monotonic() + limit_seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
