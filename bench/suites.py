"""The suites of measurements, each of several groups, and what runs them."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from bench.report import print_row
from bench.rows import Row
from bench.setting import Setting


@attrs.frozen
class Suite:
    """Measurements that make one table.

    Attributes:
        summary: For the command line.
        groups: Modules by name; each has `rows(setting)`.
    """

    summary: str
    groups: Mapping[str, str]


SUITES: Final = {
    "micro": Suite(
        "Every operation beside its peers, with target and verdict.",
        {
            name: f"bench.micro.{name}"
            for name in (
                *("get", "put", "promise", "lookups", "opening", "footprint"),
                *("throughput", "restart", "waiting"),
            )
        },
    ),
    "scale": Suite(
        "How costs grow with the number of entries, of processes, and with an entry's size.",
        {
            name.replace("_", "-"): f"bench.scale.{name}"
            for name in ("entry_sizes", "processes", "entries")
        },
    ),
    "replay": Suite(
        "Traces of mixed media through the engine, and through policies of eviction.",
        {"engine": "bench.replay.engine", "policy": "bench.replay.policy"},
    ),
    "store": Suite(
        "The order of eviction beside exact LRU, and a store of a million entries.",
        {"recency": "bench.store.recency", "million": "bench.store.scale"},
    ),
}


def measure(setting: Setting, suite: Suite, groups: Sequence[str]) -> list[Row]:
    """Return the rows of *groups* of *suite*, each measured in a folder that is removed afterwards."""
    found: list[Row] = []
    for group in groups:
        setting.progress(f"{group}:")
        folder = setting.folder / group
        folder.mkdir()
        try:
            module = importlib.import_module(suite.groups[group])
            for row in module.rows(attrs.evolve(setting, folder=folder)):
                print_row(row)
                found.append(row)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found
