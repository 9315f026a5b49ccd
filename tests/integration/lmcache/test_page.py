"""`docs/lmcache.md` names commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eccache.testing.store_conformance import EntryStoreConformance
from tests.integration.lmcache.alone import CASES

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[3] / "docs" / "lmcache.md"
ROWS = [
    line.strip("| ").split(" | ")
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`test_" in line
]


def test_every_case_is_in_the_table() -> None:
    """Whatever the script shows has its counterpart."""
    named = {name for _, alone, _ in ROWS for name in re.findall(r"\(`(\w+)`\)", alone)}
    assert set(CASES) == named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_row_names_a_test(row: list[str]) -> None:
    """The file is there, and a test in it has that name."""
    file, name = re.findall(r"\(`(test_\w+\.py)`, `(\w+)`\)", row[2])[0]
    source = (HERE / file).read_text(encoding="utf-8")
    tests = re.findall(r"def (test_\w+)", source)
    if "EntryStoreConformance" in source:
        tests += dir(EntryStoreConformance)
    assert any(name in test for test in tests)
