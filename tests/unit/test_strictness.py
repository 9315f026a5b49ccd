"""The test run itself: what it refuses, what it leaves out, and what it gives up on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(directory: Path, kind: str, source: str, **environment: str) -> tuple[int, str]:
    """Run one test module of *kind* under this project's own configuration."""
    folder = directory / "tests" / kind
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", directory)
    shutil.copy(ROOT / "tests" / "conftest.py", directory / "tests")
    (folder / "test_planted.py").write_text(source)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"ECCACHE_NIGHTLY", "HYPOTHESIS_PROFILE", "CI"} and "COV" not in name
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests"],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import pytest\ndef test_planted():\n    pytest.skip('no moon')",
        "import pytest\npytest.importorskip('no_such_package')\ndef test_planted(): pass",
        "import pytest\n@pytest.mark.skipif(True, reason='no moon')\ndef test_planted(): pass",
    ],
    ids=["inside", "module", "marker"],
)
def test_a_skipped_test_is_a_failed_test(tmp_path: Path, source: str) -> None:
    """A missing extra is an error with a remedy, not a hole in the run."""
    code, output = run(tmp_path, "unit", source)
    assert 0 != code
    assert "install what is missing" in output


def test_only_a_missing_gpu_may_skip_a_test(tmp_path: Path) -> None:
    """The CUDA tests skip where no CUDA is."""
    source = "import pytest\ndef test_planted():\n    pytest.skip('no CUDA')"
    code, output = run(tmp_path, "gpu", source)
    assert 0 == code, output
    assert "1 skipped" in output


def test_an_expected_failure_that_passes_is_a_failure(tmp_path: Path) -> None:
    """An `xfail` that is out of date does not stay."""
    source = "import pytest\n@pytest.mark.xfail(reason='planted')\ndef test_planted(): pass"
    code, output = run(tmp_path, "unit", source)
    assert 1 == code, output
    assert "XPASS(strict)" in output


def test_a_warning_is_a_failure(tmp_path: Path) -> None:
    """A warning of our own code does not scroll by."""
    source = "import warnings\ndef test_planted():\n    warnings.warn('planted', stacklevel=1)"
    code, output = run(tmp_path, "unit", source)
    assert 1 == code, output
    assert "UserWarning: planted" in output


def test_a_hung_test_fails_by_its_own_name(tmp_path: Path) -> None:
    """A test past its time limit fails, and the run goes on."""
    source = (
        "import pytest, threading\n"
        "@pytest.mark.timeout(0.2)\n"
        "def test_hung():\n    threading.Event().wait()\n"
        "def test_after(): pass"
    )
    code, output = run(tmp_path, "unit", source)
    assert 1 == code, output
    assert "FAILED tests/unit/test_planted.py::test_hung" in output
    assert "1 failed, 1 passed" in output


@pytest.mark.parametrize(
    ("environment", "outcome"),
    [({}, "1 passed, 1 deselected"), ({"ECCACHE_NIGHTLY": "1"}, "2 passed")],
    ids=["day", "night"],
)
def test_a_nightly_test_runs_at_night_only(
    tmp_path: Path, environment: dict[str, str], outcome: str
) -> None:
    """What takes a night is left out by day, visibly."""
    source = "import pytest\n@pytest.mark.nightly\ndef test_planted(): pass\ndef test_quick(): pass"
    code, output = run(tmp_path, "unit", source, **environment)
    assert 0 == code, output
    assert outcome in output


@pytest.mark.parametrize(("profile", "examples"), [("dev", 50), ("ci", 200), ("nightly", 5_000)])
def test_the_environment_chooses_the_hypothesis_profile(
    tmp_path: Path, profile: str, examples: int
) -> None:
    """`HYPOTHESIS_PROFILE` says how long property tests search."""
    source = (
        "import hypothesis\n"
        f"def test_planted(): assert {examples} == hypothesis.settings().max_examples"
    )
    code, output = run(tmp_path, "unit", source, HYPOTHESIS_PROFILE=profile)
    assert 0 == code, output
