"""Whoever follows the guide has a store and a host framework that work."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.docs.code_on_pages import files_of, write_files

TWICE_WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = None
sys.argv[:] = sys.argv[1:]
for _ in range(2):
    runpy.run_path(sys.argv[0])
"""


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    """A folder with the files of the guide, and nothing else."""
    folder = tmp_path / "guide"
    folder.mkdir()
    write_files("embedding.md", folder)
    return folder


def run(*command: object, cwd: Path) -> str:
    """Run Python with the arguments in *command* and return what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, check=False, cwd=cwd, text=True
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def test_what_the_guide_builds_passes_its_conformance_suites(guide: Path) -> None:
    """An adapter is what passes the suite."""
    printed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=guide)
    passed = int(printed.rsplit(" passed", 1)[0].rsplit(maxsplit=1)[-1])
    assert passed >= 40


def test_the_store_of_the_guide_is_as_short_as_it_says() -> None:
    """Sixty lines, not counting imports and blank ones."""
    lines = files_of("embedding.md")["folder_store.py"].splitlines()
    code = [line for line in lines if line and not line.startswith(("import ", "from "))]
    assert len(code) <= 60


def test_the_store_of_the_guide_serves_a_cache(
    guide: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the last step shows works."""
    entries = tmp_path / "entries"
    entries.mkdir()
    monkeypatch.syspath_prepend(guide)
    monkeypatch.setattr(sys, "argv", ["use_folder_store.py", str(entries)])
    runpy.run_path(str(guide / "use_folder_store.py"))
    assert "[1., 1., 1., 1.]" in capsys.readouterr().out
    assert list(entries.glob("*/my-model@1@0@*@float.safetensors"))


def test_the_framework_of_the_guide_needs_no_torch(guide: Path, tmp_path: Path) -> None:
    """A host in whose process torch can't be imported stores, and is served."""
    printed = run("-c", TWICE_WITHOUT_TORCH, "use_numpy_host.py", tmp_path / "ec", cwd=guide)
    assert ["CacheStats(hits=1, misses=1", "CacheStats(hits=2, misses=0"] == [
        line.split(", puts")[0] for line in printed.splitlines()
    ]


@pytest.mark.timeout(180)  # where this test is the first to import transformers
def test_the_transformers_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second epoch has only hits, and so has the second program."""
    (program,) = write_files("embedding-transformers.md", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program), str(tmp_path / "ec")])
    for misses in (4, 0):
        runpy.run_path(str(program))
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"EncoderStats(hits={8 - misses}, misses={misses}, bypassed={{}})"
