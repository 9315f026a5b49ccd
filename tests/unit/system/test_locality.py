"""Which file systems are asked without fear that they never answer."""

import sys
from pathlib import Path

import pytest

from eccache.adapters.system import answers_by_itself


def test_this_machines_own_file_systems_answer_by_themselves(tmp_path: Path) -> None:
    """Where tests write, and shared memory."""
    assert answers_by_itself(str(tmp_path))
    assert answers_by_itself("/dev/shm")  # noqa: S108 - only looked at


@pytest.mark.parametrize("path", ["/proc", "/nowhere/at/all"])
def test_what_is_unknown_or_absent_may_wait(path: str) -> None:
    """Nothing is assumed of a file system that is not listed."""
    assert not answers_by_itself(path)


def test_other_systems_may_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their statfs looks different."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not answers_by_itself(str(tmp_path))
