"""Variables that stand before a server's command, as in `A=B vllm serve` and `env A=B vllm serve`."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Sequence

import click

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_ENV = re.compile(r"(?:.*/)?env")


def heed_variables(arguments: Sequence[str]) -> None:
    """Where *arguments* begin with variables, run this program anew with them; it does not return then.

    Some take effect at the start of an interpreter only, such as `PYTHONPATH`.

    Raises:
        click.UsageError: they are written in a way that is not understood.
    """
    leading = list(itertools.takewhile(_is_before_the_command, arguments))
    if not leading:
        return
    following = arguments[len(leading) : len(leading) + 1]
    if _ENV.fullmatch(leading[-1]) and following and following[0].startswith("-"):
        raise click.UsageError(
            f"Of env, NAME=VALUE is understood, and not {following[0]}: leave it out, and see to it "
            "before this command."
        )
    words = sys.orig_argv
    start = words.index("--") + 1 if "--" in words else len(words)
    if words[start : start + len(leading)] != leading:
        raise click.UsageError("Write -- before the server's command and its variables.")
    given = dict(word.split("=", 1) for word in leading if _ASSIGNMENT.fullmatch(word))
    # Names alone: a value may be a secret.
    click.echo(f"with the variables before the command: {', '.join(given) or 'none'}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    rest = [*words[:start], *words[start + len(leading) :]]  # begins with none, so it ends here
    os.execve(sys.executable, rest, os.environ | given)  # noqa: S606 - the same program


def _is_before_the_command(word: str) -> bool:
    return bool(_ASSIGNMENT.fullmatch(word) or _ENV.fullmatch(word))
