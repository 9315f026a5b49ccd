"""Real vLLM with LMCache on a real Redis behind the host's store: warm hosts, and a Redis that dies."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.entry_files import entry_files
from tests.e2e.servers import Connector, Served, ServerPool, ServerSpec
from tests.e2e.waiting import eventually
from tests.integration.lmcache.redis_server import RedisServer

STORE_TIMEOUT_SECONDS = 2.0
LOOKUP_TIMEOUT_SECONDS = 3.0


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """What the hosts share."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


def spec(root: Path, redis: RedisServer) -> ServerSpec:
    """A host with a root of its own, and the Redis of all."""
    extra = (
        ("remote_url", redis.url),
        ("lmcache_pool_size", 0.125),
        ("store_timeout_seconds", STORE_TIMEOUT_SECONDS),
        ("lookup_timeout_seconds", LOOKUP_TIMEOUT_SECONDS),
        ("tier_open_timeout_seconds", 120),
    )
    return ServerSpec(connector=Connector(root=root, extra=extra))


def entries_in(redis: RedisServer) -> int:
    """How many whole entries Redis has; LMCache writes two values for each."""
    return len([name for name in redis.client().scan_iter() if name.endswith(b"metadata")])


def tier_is_up(served: Served) -> bool:
    """What the server's metrics say of its tier."""
    return served.metrics().total("vllm:eccache_tier_up", tier="lmcache") == 1


def test_hosts_are_warm_from_redis_and_answer_without_it(
    pool: ServerPool,
    redis: RedisServer,
    tmp_path: Path,
    video: Medium,
    coffee: Medium,
    new_picture: Callable[[], Medium],
) -> None:
    """What host A stored, host B has at its first request, and A again on an empty disk.

    When Redis dies, requests are answered in time and right; when it is back, it is used again.
    """
    questions = [Question("What is this?", (coffee,)), Question("What happens?", (video,))]
    later = [Question("What is this?", (new_picture(),)) for _ in range(6)]
    reference = pool.get(ServerSpec())
    expected, expected_later = reference.answers(questions), reference.answers(later)
    roots = {host: tmp_path / host for host in "ab"}

    first = pool.get(spec(roots["a"], redis))
    assert expected == first.answers(questions)
    assert 2 == len(first.encoder_runs())
    eventually(lambda: entries_in(redis) == 2, "both entries in Redis")

    pool.stop(spec(roots["a"], redis))
    shutil.rmtree(roots["a"])
    wiped = pool.get(spec(roots["a"], redis))
    assert expected == wiped.answers(questions)
    assert [] == wiped.encoder_runs()

    other = pool.get(spec(roots["b"], redis))
    assert expected == other.answers(questions)
    assert [] == other.encoder_runs()
    eventually(lambda: len(entry_files(roots["b"])) == 2, "both entries kept on host b")

    assert tier_is_up(other)
    redis.kill()
    for question, answer in zip(later[:3], expected_later[:3], strict=True):
        started = time.monotonic()
        assert answer == other.ask(question).text
        assert time.monotonic() - started < LOOKUP_TIMEOUT_SECONDS + 60
    assert expected == other.answers(questions)
    assert 3 == len(other.encoder_runs())

    redis.start()

    def reaches_redis() -> bool:
        other.ask(Question("What is this?", (new_picture(),)))
        return entries_in(redis) > 0

    assert not tier_is_up(other)
    eventually(reaches_redis, "new entries in Redis again", seconds=120)
    assert expected_later[3:] == other.answers(later[3:])
    assert 0 == other.metrics().total("vllm:eccache_broken_promises_total")
    assert tier_is_up(other), "that it is back is seen in the metrics"
    for host in (wiped, other):
        assert host.server.is_alive()
    pool.stop(spec(roots["a"], redis))
    pool.stop(spec(roots["b"], redis))
