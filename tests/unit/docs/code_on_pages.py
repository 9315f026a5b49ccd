"""Finds the code on a page of the documentation."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
_BLOCK = re.compile(
    r"^```\{code-block\} python\n:caption: (\S+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


def files_of(page: str) -> dict[str, str]:
    """Return the files that a page shows, by name; one that comes in pieces is put together."""
    files: dict[str, str] = defaultdict(str)
    for name, text in _BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        files[name] += text
    return dict(files)


def write_files(page: str, folder: Path) -> list[Path]:
    """Write the files that a page shows into *folder*."""
    paths = []
    for name, text in files_of(page).items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
