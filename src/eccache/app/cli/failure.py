"""How a command that could not be carried out ends: cause and remedy, an exit code, no traceback."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from eccache.domain.errors import ECCacheError

EXIT_FOUND: Final = 1
"""What was looked for is there: damage, an error, a difference."""
EXIT_FAILED: Final = 3
"""The command could not be carried out."""
EXIT_INTERRUPTED: Final = 130
EXIT_CLOSED_PIPE: Final = 141
"""Nobody reads the output any more: what a shell says of a tool that SIGPIPE ended."""


class Failure(click.ClickException):
    """A command that could not be carried out."""

    exit_code = EXIT_FAILED

    def __init__(self, cause: str, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(cause)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print cause and remedy to standard error."""
        click.echo(f"Error: {self.message}", file=file, err=file is None)
        if self.remedy:
            click.echo(f"Remedy: {self.remedy}", file=file, err=file is None)


class Interrupted(Failure):
    """The user stopped the command."""

    exit_code = EXIT_INTERRUPTED

    def __init__(self) -> None:
        super().__init__("interrupted; what was done until now is done")


@contextmanager
def failures_explained() -> Iterator[None]:
    """Turn what may go wrong in a command into a `Failure`."""
    try:
        yield
    except ECCacheError as error:
        raise Failure(error.cause, error.remedy) from error
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            sys.exit(EXIT_CLOSED_PIPE)
        where = f" ({error.filename})" if error.filename else ""
        raise Failure(
            f"{error.strerror or error}{where}",
            "look whether the path is right, mounted, and this user's.",
        ) from error
    except (KeyboardInterrupt, click.Abort) as stopped:
        raise Interrupted from stopped


def _nobody_reads() -> bool:
    """Whether standard output or error is a pipe without a reader; what is left to write goes nowhere then.

    Else the interpreter would try once more when it ends, and say so.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # no file, where somebody replaced it
            continue
        asked = select.poll()
        asked.register(descriptor, 0)
        if any(state & (select.POLLERR | select.POLLHUP) for _, state in asked.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            return True
    return False
