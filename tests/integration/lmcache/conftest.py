"""One Redis for all tests of a run, emptied for each; another one where a test kills it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before LMCache is imported: it logs a line for every call.
os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")

from tests.integration.lmcache.redis_server import RedisServer

LMCACHES_OWN_WARNINGS = ("ignore:Call to deprecated close:DeprecationWarning",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let be what LMCache does with its libraries; everything else stays an error."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for warning in LMCACHES_OWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def running_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that lives as long as the run."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_server(running_redis: RedisServer) -> RedisServer:
    """A Redis that holds nothing."""
    running_redis.client().flushall()
    return running_redis


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that the test may kill and freeze."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.thaw()
    server.kill()
