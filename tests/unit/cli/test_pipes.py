"""Output that nobody reads to its end, as with `eccache ls | head -1`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eccache.app.cli.failure import EXIT_CLOSED_PIPE, Failure, failures_explained
from tests.unit.cli.conftest import Filled

COMMANDS = {
    "stat": ["stat"],
    "stat as JSON": ["stat", "--json"],
    "ls": ["ls"],
    "verify": ["verify", "--json"],
    "gc": ["gc"],
    "purge": ["purge", "--all", "--yes"],
    "doctor": ["doctor"],
}


def with_a_closed_pipe(arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run `eccache` with a pipe for its output that has no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "eccache", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_closed_pipe_ends_a_command_quietly(filled: Filled, name: str) -> None:
    """No word of an error, not at the interpreter's end either, and the exit code of SIGPIPE in a shell."""
    ended = with_a_closed_pipe([*COMMANDS[name], "--path", str(filled.root)])
    said = ended.stderr.decode()
    assert EXIT_CLOSED_PIPE == ended.returncode, said
    for word in ("Error", "Remedy", "BrokenPipe", "Traceback"):
        assert word not in said


def test_help_with_a_closed_pipe_is_quiet() -> None:
    """As for a command."""
    assert b"" == with_a_closed_pipe(["--help"]).stderr


def test_a_pipe_to_somebody_else_is_a_failure() -> None:
    """A server that hangs up is no reader that went away."""
    with pytest.raises(Failure, match="Broken pipe"), failures_explained():
        raise BrokenPipeError(32, "Broken pipe")


def test_what_a_reader_took_is_whole(filled: Filled, tmp_path: Path) -> None:
    """The other way round: whoever reads to the end gets all, and 0."""
    with (tmp_path / "out").open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-m", "eccache", "ls", "--path", str(filled.root)],
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert 0 == ended.returncode
    assert 5 == len((tmp_path / "out").read_text().splitlines())
