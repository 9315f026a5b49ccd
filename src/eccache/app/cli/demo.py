"""`eccache demo`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from eccache.app.cli.failure import EXIT_FOUND, Failure, failures_explained


def _default_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "eccache" / "demo"


@click.command("demo")
@click.option(
    "--path",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for the demo's files; an earlier demo's are replaced. [default: ~/.cache/eccache/demo]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(directory: Path | None, *, as_json: bool) -> None:
    """Serve a real video with vLLM, restart it, and answer from the cache.

    Takes one to three minutes. Progress goes to standard error. Exits with 1 when the restarted server
    answered otherwise, or did not take both encoder outputs from the cache, with 3 when it can't run here.
    """
    from eccache.app.demo import torch_shim
    from eccache.app.demo.report import print_report
    from eccache.app.demo.run import DemoError, run_demo
    from eccache.app.demo.server import ServerError

    begin = time.monotonic()

    def progress(line: str) -> None:
        click.echo(f"{time.monotonic() - begin:6.1f} s  {line}", err=True)

    with failures_explained():
        try:
            result = run_demo((directory or _default_directory()).absolute(), progress)
        except (DemoError, ServerError) as error:
            raise Failure(str(error)) from error
    if as_json:
        click.echo(result.to_json())
    else:
        from rich.console import Console

        print_report(Console(), result, torch_shim.environment(()))
    sys.exit(0 if result.succeeded else EXIT_FOUND)
