"""The documentation builds, and a warning is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_documentation_builds_without_warnings(tmp_path: Path) -> None:
    """Every link, every name and every page of the index is there; no network is asked."""
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", DOCS, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stdout + result.stderr
    assert (tmp_path / "index.html").is_file()
