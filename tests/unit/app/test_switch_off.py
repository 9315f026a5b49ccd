"""Switching the cache off at run time, as the documentation says it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import torch

from eccache import CacheConfig, open_cache

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
