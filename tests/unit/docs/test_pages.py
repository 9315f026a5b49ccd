"""What the pages say of files, commands and settings is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").glob("*.md"))
_SOURCE = re.compile(r"`((?:app|adapters|domain|ports|testing)/[\w/]+(?:\.py|/))`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    """A reader who follows a page into the code finds what it names."""
    named = set(_SOURCE.findall(page.read_text(encoding="utf-8")))
    missing = {name for name in named if not (ROOT / "src" / "eccache" / name).exists()}
    assert set() == missing
