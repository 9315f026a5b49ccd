"""LMCache on a real Redis as the tier behind the local store, opened as a user opens it."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import eccache
from eccache.adapters.lmcache import names_a_place
from eccache.app.tiers.circuit_breaker import TierState
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.tiers.tiered_store import TieredStore
from tests.integration.lmcache.redis_server import RedisServer

OUTPUT = torch.arange(4096 * 8, dtype=torch.float32).reshape(-1, 8).to(torch.bfloat16)
LONG = 60.0
Cache = eccache.ECCacheEngine[torch.Tensor]


def opened(root: Path, redis: RedisServer, timeout_seconds: float = 10.0) -> Cache:
    """A server's cache: a root of its own, the Redis that it shares."""
    config = eccache.load_config(
        {
            "local_disk": str(root),
            "remote_url": redis.url,
            "lmcache_pool_size": 0.125,
            "store_timeout_seconds": timeout_seconds,
        },
        environ={},
    )
    return eccache.open_cache(config, model="test/model", encoder_dtype="bfloat16")


def store_of(cache: Cache) -> TieredStore:
    """The tiers of *cache*."""
    store = cache._parts.store  # noqa: SLF001 - tests look behind
    assert isinstance(store, TieredStore)
    return store


def tier_of(cache: Cache) -> RemoteTier:
    """LMCache's tier."""
    (tier,) = store_of(cache).remotes
    return tier


def stored(cache: Cache, mm_hash: str = "a") -> None:
    """Put, and wait until Redis has it too."""
    assert cache.put(mm_hash, OUTPUT)
    assert cache.flush(LONG)
    wait_for(lambda: tier_of(cache).contains(cache.ref(mm_hash)))


def is_hit(cache: Cache, mm_hash: str = "a") -> bool:
    """Whether *cache* serves the output."""
    found = cache.get(mm_hash)
    assert found is None or torch.equal(OUTPUT, found)
    return found is not None


def wait_for(condition: Callable[[], bool]) -> None:
    """Ask until it is so: what is waited for happens in other threads and processes."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def totals(cache: Cache) -> dict[str, int]:
    """What *cache* counted."""
    return cache._parts.telemetry.totals()  # noqa: SLF001


def test_another_server_is_warm_at_its_first_request(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """What server A stored, server B has, on a root of its own; and keeps locally from then on."""
    a, b = opened(tmp_path / "a", redis_server), opened(tmp_path / "b", redis_server)
    stored(a)
    assert is_hit(b)
    assert 1 == totals(b)["tier_hits:lmcache"]
    wait_for(lambda: store_of(b).local.contains(b.ref("a")))
    assert is_hit(b)
    assert 1 == totals(b)["tier_hits:lmcache"]
    a.close()
    b.close()


def test_a_server_whose_root_was_wiped_is_warm(tmp_path: Path, redis_server: RedisServer) -> None:
    """A new machine, a lost disk: Redis has it."""
    cache = opened(tmp_path / "a", redis_server)
    stored(cache)
    cache.close()
    shutil.rmtree(tmp_path / "a")
    cache = opened(tmp_path / "a", redis_server)
    assert is_hit(cache)
    cache.close()


def test_a_redis_that_dies_costs_misses_and_is_found_again(
    tmp_path: Path, own_redis: RedisServer
) -> None:
    """The local store goes on, errors are counted apart, the breaker opens, and closes by itself."""
    a = opened(tmp_path / "a", own_redis, timeout_seconds=1.0)
    b = opened(tmp_path / "b", own_redis, timeout_seconds=1.0)
    stored(a)
    own_redis.kill()
    assert is_hit(a)
    for number in range(20):
        assert not is_hit(b, f"absent {number}")
    assert tier_of(b).state is not TierState.CLOSED
    assert totals(b)["tier_errors:lmcache"] > 0
    assert b.put("local", OUTPUT)
    assert b.flush(LONG)
    assert is_hit(b, "local")
    own_redis.start()
    wait_for(lambda: b.get("absent") is None and tier_of(b).state is TierState.CLOSED)
    # Connections from before are found dead one by one, and what was put meanwhile is local only.
    names = (f"new {number}" for number in itertools.count())

    def reaches_redis(name: str) -> bool:
        assert a.put(name, OUTPUT)
        assert a.flush(LONG)
        store_of(a)._copier.flush(LONG)  # noqa: SLF001 - nothing else waits for copies alone
        return tier_of(a).contains(a.ref(name)) and is_hit(b, name)

    wait_for(lambda: reaches_redis(next(names)))
    a.close()
    b.close()


def test_a_hundred_faults_in_a_row_hang_nothing(tmp_path: Path, own_redis: RedisServer) -> None:
    """Frozen in the middle of it all: every get ends in time, and so does close."""
    cache = opened(tmp_path / "a", own_redis, timeout_seconds=0.5)
    stored(cache)
    own_redis.freeze()
    started = time.monotonic()
    for number in range(100):
        assert not is_hit(cache, f"absent {number}")
    assert time.monotonic() - started < 30
    assert is_hit(cache)
    started = time.monotonic()
    cache.close()
    assert time.monotonic() - started < 40


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nonsense://x", "fs://host:0/proc/none/"])
def test_a_tier_that_can_not_be_opened_costs_a_warning_and_misses(tmp_path: Path, url: str) -> None:
    """A dead back end never stops a server."""
    config = eccache.load_config({"local_disk": str(tmp_path), "remote_url": url}, environ={})
    cache = eccache.open_cache(config, model="m", encoder_dtype="bfloat16")
    assert not is_hit(cache)
    assert cache.put("a", OUTPUT)
    assert cache.flush(LONG)
    assert is_hit(cache)
    cache.close()


def test_keys_that_name_no_place_open_no_tier(tmp_path: Path) -> None:
    """A file for LMCache's KV cache alone changes nothing."""
    config = eccache.load_config({"local_disk": str(tmp_path), "cache_policy": "LRU"}, environ={})
    cache = eccache.open_cache(config, model="m", encoder_dtype="bfloat16")
    assert not isinstance(cache._parts.store, TieredStore)  # noqa: SLF001 - tests look behind
    cache.close()


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"enable_nixl_storage": True}, True),
        ('{"enable_nixl_storage": true}', True),
        ('{"enable_nixl_storage": false}', False),
        ('["enable_nixl_storage"]', False),
        ("enable_nixl_storage", False),
        (None, False),
    ],
)
def test_nixl_is_a_place_in_whatever_form_it_is_written(extra: object, expected: bool) -> None:  # noqa: FBT001
    """An environment has text; LMCache reads it as JSON, so that a tier would be left out silently."""
    assert expected is names_a_place({"extra_config": extra})
