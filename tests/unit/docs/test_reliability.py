"""Every test that the table of faults names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
TESTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [
        *(ROOT / "tests").rglob("*.py"),
        ROOT / "src" / "eccache" / "testing" / "store_conformance.py",
    ]
}


def test_every_named_file_is_there() -> None:
    """A file without its folder is one of the native store's."""
    names = set(re.findall(r"`([\w/]+\.py)(?:::\w+)?`", PAGE))
    missing = [
        name for name in names if name not in TESTS and f"tests/unit/disk/{name}" not in TESTS
    ]
    assert len(names) > 10
    assert [] == missing


def test_every_named_test_is_there() -> None:
    """By its name."""
    names = set(re.findall(r"[:`](test_\w+)`", PAGE))
    defined = set(re.findall(r"def (test_\w+)", "\n".join(TESTS.values())))
    assert len(names) > 30
    assert [] == sorted(names - defined)
