"""The package tells a user's type checker the truth."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("program", ["correct_program.py", "wrong_program.py"])
def test_a_users_program_is_judged_rightly(
    program: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Outside this project, with nothing configured: what is right passes, each slip is found."""
    (tmp_path / program).write_bytes((HERE / program).read_bytes())
    # Kept between runs, since analysing torch takes half a minute.
    cache = pytestconfig.rootpath / ".mypy_cache" / "user_programs"
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Success: no issues found in 1 source file\n" == done.stdout + done.stderr
