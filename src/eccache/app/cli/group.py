"""The command group. A command's module is loaded when the command is run, so `--help` is quick."""

from __future__ import annotations

import importlib
from typing import Final

import click

from eccache._version import __version__

COMMANDS: Final = {
    "demo": "Serve a real video with vLLM, restart it, and answer from the cache.",
    "stat": "Show what a store holds, and how much of its caps it uses.",
    "ls": "List the entries of a store.",
    "verify": "Read every entry and check its digest; exit 1 if one is damaged.",
    "gc": "Remove leftovers of killed processes and bring a store under its cap.",
    "purge": "Remove entries by namespace, age or format version, or all of them.",
    "doctor": "Check configuration, store and versions; say what is wrong and what to do.",
    "bench": "Measure what the cache saves: time to first token, cold and warm.",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"eccache.app.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="eccache")
def main() -> None:
    """A verified, host-wide, restart-proof cache for multimodal encoder outputs."""
