"""Switching the cache off at run time, as the documentation says it."""

from __future__ import annotations

import logging
import re
import subprocess
from pathlib import Path

import pytest
import torch

from eccache import CacheConfig, load_config, open_cache
from eccache.domain.errors import ConfigError

PAGE = Path(__file__).parents[3] / "docs" / "upgrading.md"


def commands(root: Path) -> list[str]:
    """The documented commands, for the store at *root*: off, then on."""
    section = PAGE.read_text(encoding="utf-8").split("## Switch it off at run time")[1]
    found = re.findall(r"```shell\n(.*?)```", section, re.DOTALL)[:2]
    return [command.replace("/var/cache/ec", str(root)) for command in found]


def test_the_documented_commands_switch_running_servers_off_and_on(tmp_path: Path) -> None:
    """Off: misses and counted failures, no error to the caller. On: the entries are there again."""
    root = tmp_path / "ec"
    off, on = commands(root)
    tensor = torch.arange(64, dtype=torch.float32)
    config = CacheConfig(local_disk=str(root), min_free_space_ratio=0.0)
    with open_cache(config, model="m", encoder_dtype="float32") as cache:
        assert cache.put("before", tensor)
        assert cache.flush()

        subprocess.run(off, shell=True, check=True)  # noqa: S602 - what a user would type
        assert not cache.contains("before")
        assert cache.get("before") is None
        assert cache.put("meanwhile", tensor)
        assert not cache.flush()
        assert cache.get("meanwhile") is None
        stats = cache.stats()
        assert (2, 1) == (stats.misses, stats.failed_puts)

        subprocess.run(on, shell=True, check=True)  # noqa: S602 - what a user would type
        found = cache.get("before")
        assert found is not None
        assert torch.equal(tensor, found)
        assert cache.put("after", tensor)
        assert cache.flush()
        assert cache.get("after") is not None


def test_running_servers_say_once_that_the_cache_is_switched_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the file that does it and what to do, in place of words of the operating system."""
    root = tmp_path / "ec"
    off, _ = commands(root)
    config = CacheConfig(local_disk=str(root), min_free_space_ratio=0.0)
    with open_cache(config, model="m", encoder_dtype="float32") as cache:
        subprocess.run(off, shell=True, check=True)  # noqa: S602 - what a user would type
        for number in range(3):
            assert cache.put(f"meanwhile {number}", torch.ones(8))
            assert not cache.flush()
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"the cache is switched off: {root}/v1 is a file" in line
    assert f"rm {root}/v1" in line
    assert "Not a directory" not in line


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_start_meanwhile_is_refused_in_words_about_the_switch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_memory: bool,  # noqa: FBT001
) -> None:
    """Which file it is, how to switch on, and how to start without; also where entries are in memory."""
    root = tmp_path / "ec"
    root.mkdir(mode=0o700)
    (root / "v1").touch()
    monkeypatch.setattr("eccache.app.bootstrap.stores.shared_memory_root", lambda: str(root))
    config = CacheConfig(local_disk=None if in_memory else str(root))
    with pytest.raises(ConfigError, match="switched off") as refused:
        open_cache(config, model="m", encoder_dtype="float32")
    assert f"{root}/v1 is a file" in refused.value.cause
    assert f"rm {root}/v1" in refused.value.remedy
    assert "enabled" in refused.value.remedy


def test_a_configuration_that_switches_off_is_said_with_its_source(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the start, once; and nothing is said of a cache that is on."""
    load_config(environ={})
    assert [] == caplog.records
    load_config(environ={"ECCACHE_ENABLED": "false"})
    (record,) = caplog.records
    assert logging.WARNING == record.levelno
    line = record.getMessage()
    assert "config.cache.switched_off" in line
    assert "environment variable ECCACHE_ENABLED" in line
