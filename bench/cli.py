"""The command line of the measurements."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from bench import report
from bench.machine import this_machine
from bench.setting import Setting
from bench.sizes import SIZES
from bench.suites import SUITES, measure
from bench.torchvision import QUIET, cure

RESULTS: Final = Path(__file__).parent / "results"
SIZE_LABELS: Final = [size.label.split()[0] for size in SIZES]


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Measure the cache. Without a command: `micro`, the table with targets, peers and verdicts."""
    if context.invoked_subcommand is None:
        run("micro")


def _command(name: str) -> click.Command:
    suite = SUITES[name]

    @click.command(name, help=f"{suite.summary} Prints a table; writes JSON, a picture and a page.")
    @click.option("--quick", is_flag=True, help="Few repetitions: to see that it runs.")
    @click.option(
        "--only",
        "groups",
        multiple=True,
        type=click.Choice(list(suite.groups)),
        help="Groups; default: all.",
    )
    @click.option(
        "--size", "sizes", multiple=True, type=click.Choice(SIZE_LABELS), help="MB; default: all."
    )
    @click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=RESULTS,
        help="Where results, and for a while files, go: on the file system to measure.",
    )
    @click.option(
        "--threads", type=int, default=1, help="Torch's threads; one, as vLLM's workers have."
    )
    def command(
        groups: Sequence[str], sizes: Sequence[str], folder: Path, threads: int, *, quick: bool
    ) -> None:
        run(name, groups, sizes, folder, threads, quick=quick)

    return command


for _name in SUITES:
    main.add_command(_command(_name))


def run(
    name: str,
    groups: Sequence[str] = (),
    sizes: Sequence[str] = (),
    folder: Path = RESULTS,
    threads: int = 1,
    *,
    quick: bool = False,
) -> None:
    """Run a suite, print its table, and write its files.

    Args:
        name: Of the suite.
        groups: Some of its groups; empty: all.
        sizes: Some sizes of entries; empty: all.
        folder: For results, and for a while for files.
        threads: Torch's.
        quick: Few repetitions.
    """
    _prepare(threads)
    folder.mkdir(parents=True, exist_ok=True)
    machine = this_machine(folder)
    click.echo(machine.line())
    if not machine.quiet:
        click.echo("The machine is busy: absolute figures mean little, ratios something.", err=True)
    chosen = tuple(size for size in SIZES if not sizes or size.label.split()[0] in sizes)
    with tempfile.TemporaryDirectory(prefix="work-", dir=folder) as work:
        setting = Setting(folder=Path(work), quick=quick, sizes=chosen, progress=click.echo)
        rows = measure(setting, SUITES[name], groups or list(SUITES[name].groups))
    report.print_table(rows)
    page = report.write(folder, name, machine, rows, quick=quick)
    click.echo(f"written: {page.with_suffix('.*')}")


def _prepare(threads: int) -> None:
    """Make vLLM and LMCache importable and silent, and say how many threads torch may use."""
    os.environ.update(QUIET)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    cure()
    import torch

    torch.set_num_threads(threads)
