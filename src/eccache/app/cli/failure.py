"""How a command that could not be carried out ends: cause and remedy, an exit code, no traceback."""

from __future__ import annotations

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
        where = f" ({error.filename})" if error.filename else ""
        raise Failure(
            f"{error.strerror or error}{where}",
            "look whether the path is right, mounted, and this user's.",
        ) from error
    except (KeyboardInterrupt, click.Abort) as stopped:
        raise Interrupted from stopped
