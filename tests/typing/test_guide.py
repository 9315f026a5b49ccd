"""What the guide shows is what a strict type checker accepts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.docs.code_on_pages import write_files


@pytest.mark.timeout(300)  # where this test is the first to analyse torch
def test_the_adapters_of_the_guide_fit_their_ports(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A store and a framework written by the guide are ones to the type checker too."""
    files = [path.name for path in write_files("embedding.md", tmp_path)]
    # Kept between runs, since analysing torch takes half a minute.
    cache = pytestconfig.rootpath / ".mypy_cache" / "user_programs"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Success: no issues found in 6 source files\n" == done.stdout + done.stderr
