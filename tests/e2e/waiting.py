"""Waiting for another process: asks until it is so, for at the most a while."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T], what: str, *, seconds: float = 30.0) -> T:
    """Return the first answer that is true.

    Raises:
        AssertionError: None was in time; names *what* was waited for and the last answer.
    """
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:.0f} s, last {answer!r}")
        time.sleep(0.05)
    return answer
