"""The remote tier as `eccache doctor` finds it: on a real Redis, a dead one, a frozen one, and on none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eccache.app.bootstrap.tier_trial import has_remote_tier, try_out_tier
from eccache.app.config import CacheConfig, load_config
from eccache.domain.errors import StoreFault
from tests.integration.lmcache.redis_server import RedisServer


def config_of(root: Path, url: str) -> CacheConfig:
    """A server's configuration."""
    return load_config({"local_disk": str(root), "remote_url": url}, environ={})


def test_a_tier_that_answers_is_named_and_left_as_it_is(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked and nothing is stored; the environment is as before."""
    monkeypatch.delenv("LMCACHE_LOG_LEVEL", raising=False)
    config = config_of(tmp_path, redis_server.url)
    assert has_remote_tier(config)
    assert "RemoteBackend" == try_out_tier(config)
    assert 0 == redis_server.client().dbsize()
    assert "LMCACHE_LOG_LEVEL" not in os.environ


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("rediss3://x", "not connected: ValueError: No adapter found for URL: rediss3://x"),
        ("rediss3://me:pw@x?password=pw", r"URL: rediss3://\*\*\*@x\?\*\*\*$"),
        ("redis://127.0.0.1:1", "Error 111 connecting"),
    ],
)
def test_a_tier_that_can_not_answer_is_explained(tmp_path: Path, url: str, cause: str) -> None:
    """In LMCache's words, which it tells its own log alone, less what would let a reader in."""
    with pytest.raises(StoreFault, match=cause):
        try_out_tier(config_of(tmp_path, url))


def test_a_frozen_tier_is_given_up(
    tmp_path: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are taken and nothing is answered; whoever asks is told so, and does not wait for ever."""
    monkeypatch.setattr("eccache.app.bootstrap.tier_trial.PATIENCE_SECONDS", 0.5)
    own_redis.freeze()
    with pytest.raises(StoreFault, match=r"(?i)time|answer"):
        try_out_tier(config_of(tmp_path, own_redis.url))
