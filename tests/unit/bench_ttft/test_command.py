"""`eccache bench ttft`: what is wrong with a call is said before a server is started."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from eccache.app.cli import main


def call(folder: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code and what was said of a call that can't be carried out."""
    photo = folder / "photo.jpg"
    photo.touch()
    fixed = ("bench", "ttft", "--model", "model", "--media", str(photo))
    result = CliRunner().invoke(main, [*fixed, *arguments])
    assert "Traceback" not in result.output
    return result.exit_code, result.stderr


def test_frames_that_are_no_numbers_are_a_usage_error(tmp_path: Path) -> None:
    """With what to write instead."""
    code, said = call(tmp_path, "--num-frames", "many", "--path", str(tmp_path))
    assert 2 == code
    assert "'many' is no list of numbers, such as 32,128" in said


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    """Cause and remedy with exit code 3."""
    code, said = call(tmp_path, "--path", str(tmp_path / "photo.jpg" / "folder"))
    assert 3 == code
    assert "Remedy:" in said
