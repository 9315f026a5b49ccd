"""`eccache bench`."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eccache.app.cli.failure import Failure, failures_explained

if TYPE_CHECKING:
    from eccache.app.bench_ttft.plan import Plan, Series

NEEDED: Final = {"vllm": "vllm", "openai": "demo", "matplotlib": "bench"}
"""Packages that are imported, and the extra that brings each."""
NEEDED_FOR_OWN_MEDIA: Final = {"cv2": "demo", "skimage": "demo"}
SMALL_MODEL_ROOM: Final = (
    *("--max-model-len", "16384"),
    *("--max-num-batched-tokens", "8192"),  # which bounds the size of an encoder output, too
    *("--kv-cache-memory-bytes", str(256 << 20)),
)
"""For a video of 128 frames."""
VIDEO_SECONDS: Final = 68
"""Of the video that is made: Qwen2.5-VL is shown two frames a second, and 128 frames are wanted."""


@click.group("bench", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Measure what the cache saves on this machine."""


@command.command("ttft")
@click.option("--model", default=None, help="Name or folder. [default: a small model, made here]")
@click.option(
    "--media",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A video or a picture; may be given again. [default: a video and a photograph, made here]",
)
@click.option(
    "--num-frames",
    default="32,128",
    show_default=True,
    help="Frames of each video that the model is shown, separated by commas.",
)
@click.option("--repetitions", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--connector",
    "connectors",
    multiple=True,
    default=("eccache",),
    show_default=True,
    help="eccache, ECExampleConnector, none, or NAME=JSON, the value of --ec-transfer-config with {store} "
    "where its folder goes; may be given again.",
)
@click.option(
    "--path",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for stores, logs, ttft.json and ttft.png. [default: ~/.cache/eccache/bench-ttft]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ttft(  # noqa: PLR0913 - the options of the command
    model: str | None,
    media: tuple[Path, ...],
    num_frames: str,
    repetitions: int,
    connectors: tuple[str, ...],
    directory: Path | None,
    arguments: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Time the first token of a real vLLM, cold and after a restart.

    For each connector and number of frames a server is started with an empty store, asked about each
    medium, stopped, started again, and asked again. Prefix caching is off, and the first requests of a
    server don't count. ARGUMENTS, behind `--`, go to vLLM:

    \b
        eccache bench ttft --model Qwen/Qwen2.5-VL-7B-Instruct \\
          --media clip.mp4 --connector eccache \\
          --connector ECExampleConnector -- --max-model-len 32768

    Prints for each medium the time to first token cold and after the restart, what was saved, and which
    share of the encoder's time that is; writes ttft.json and a plot. Progress goes to standard error.
    """  # noqa: D301 - click keeps the lines behind the control character as they are
    from eccache.app.bench_ttft.plot import draw
    from eccache.app.bench_ttft.report import print_report
    from eccache.app.bench_ttft.run import MeasurementError, run_plan
    from eccache.app.demo.server import ServerError

    folder = (directory or _default_directory()).absolute()
    _require_packages(own_media=not media or model is None)
    with failures_explained():
        folder.mkdir(parents=True, exist_ok=True)
        plan = _plan(folder, model, media, num_frames, connectors, repetitions, arguments)
    begin = time.monotonic()

    def progress(line: str) -> None:
        click.echo(f"{time.monotonic() - begin:6.1f} s  {line}", err=True)

    progress(f"a server will be started {plan.starts} times")
    with failures_explained():
        try:
            result = run_plan(plan, progress)
        except (ServerError, MeasurementError) as error:
            raise Failure(str(error)) from error
    (folder / "ttft.json").write_text(result.to_json() + "\n")
    draw(folder / "ttft.png", result)
    if as_json:
        click.echo(result.to_json())
    else:
        from rich.console import Console

        # Into a file or a pipe it is not squeezed into eighty columns.
        print_report(Console(width=None if sys.stdout.isatty() else 150), result)
        click.echo(f"written: {folder / 'ttft.json'}, {folder / 'ttft.png'}")


def _default_directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "eccache" / "bench-ttft"


def _require_packages(*, own_media: bool) -> None:
    needed = NEEDED | (NEEDED_FOR_OWN_MEDIA if own_media else {})
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        extras = ",".join(sorted({needed[package] for package in missing}))
        raise Failure(
            f"{', '.join(missing)} can't be imported here", f"pip install 'eccache[{extras}]'"
        )


def _plan(
    folder: Path,
    model: str | None,
    media: tuple[Path, ...],
    num_frames: str,
    connectors: tuple[str, ...],
    repetitions: int,
    arguments: tuple[str, ...],
) -> Plan:
    from eccache.app.bench_ttft.plan import Connector, Plan
    from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS

    if model is None:
        from eccache.app.demo.model import DEMO, build_model

        model = str(build_model(folder / "model", DEMO).directory)
        arguments = (*SMALL_MODEL_ARGUMENTS, *SMALL_MODEL_ROOM, *arguments)
    try:
        return Plan(
            model=model,
            series=_series(folder, media, num_frames),
            connectors=tuple(Connector.named(name) for name in dict.fromkeys(connectors)),
            repetitions=repetitions,
            arguments=arguments,
            folder=folder,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _series(folder: Path, media: tuple[Path, ...], num_frames: str) -> tuple[Series, ...]:
    from eccache.app.bench_ttft.plan import series_of

    try:
        frames = [int(count) for count in num_frames.split(",") if count.strip()]
    except ValueError:
        raise ValueError(
            f"--num-frames: {num_frames!r} is no list of numbers, such as 32,128"
        ) from None
    if not media:
        from eccache.app.demo.media import make_media

        made = make_media(folder / "media", seconds=VIDEO_SECONDS)
        media = (made.video, made.photo_jpeg)
    return series_of(media, frames)
