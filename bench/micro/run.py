"""Runs the groups of measurements one after another."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from bench.report import print_row
from bench.rows import Row
from bench.setting import Setting

GROUPS: Final = {
    "get": "bench.micro.get",
    "put": "bench.micro.put",
    "promise": "bench.micro.promise",
    "lookups": "bench.micro.lookups",
    "opening": "bench.micro.opening",
    "footprint": "bench.micro.footprint",
    "waiting": "bench.micro.waiting",
}
"""Modules by name; each has `rows(setting)`."""


def measure(setting: Setting, groups: Sequence[str]) -> list[Row]:
    """Return the rows of *groups*, each measured in a folder that is removed afterwards."""
    found: list[Row] = []
    for group in groups:
        setting.progress(f"{group}:")
        folder = setting.folder / group
        folder.mkdir()
        try:
            for row in importlib.import_module(GROUPS[group]).rows(
                attrs.evolve(setting, folder=Path(folder))
            ):
                print_row(row)
                found.append(row)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found
