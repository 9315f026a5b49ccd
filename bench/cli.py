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
from bench.micro import GROUPS, measure
from bench.setting import Setting
from bench.sizes import SIZES
from bench.torchvision import QUIET, cure

RESULTS: Final = Path(__file__).parent / "results"
SIZE_LABELS: Final = [size.label.split()[0] for size in SIZES]


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Measure the cache beside its peers. Without a command: `micro`, all of it."""
    if context.invoked_subcommand is None:
        context.invoke(micro)


@main.command("micro")
@click.option("--quick", is_flag=True, help="Three repetitions: to see that it runs.")
@click.option(
    "--only", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="Groups; default: all."
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
def micro(
    groups: Sequence[str] = (),
    sizes: Sequence[str] = (),
    folder: Path = RESULTS,
    threads: int = 1,
    *,
    quick: bool = False,
) -> None:
    """Print every operation with its target, the peers' figures and a verdict; write JSON, PNG, HTML."""
    prepare(threads)
    folder.mkdir(parents=True, exist_ok=True)
    machine = this_machine(folder)
    click.echo(machine.line())
    if not machine.quiet:
        click.echo("The machine is busy: absolute figures mean little, ratios something.", err=True)
    chosen = tuple(size for size in SIZES if not sizes or size.label.split()[0] in sizes)
    with tempfile.TemporaryDirectory(prefix="work-", dir=folder) as work:
        setting = Setting(folder=Path(work), quick=quick, sizes=chosen, progress=click.echo)
        rows = measure(setting, groups or list(GROUPS))
    report.print_table(rows)
    page = report.write(folder, "micro", machine, rows)
    click.echo(f"written: {page.with_suffix('.*')}")


def prepare(threads: int) -> None:
    """Make vLLM and LMCache importable and silent, and say how many threads torch may use."""
    os.environ.update(QUIET)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    cure()
    import torch

    torch.set_num_threads(threads)
