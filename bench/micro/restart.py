"""A real server that was restarted: what loading costs beside the encoder's time that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.rows import Row
from bench.setting import Setting
from eccache.app.bench_ttft.plan import Connector, Plan, series_of
from eccache.app.bench_ttft.result import Measured
from eccache.app.bench_ttft.run import run_plan
from eccache.app.cli.bench import SMALL_MODEL_ROOM, VIDEO_SECONDS
from eccache.app.demo.media import make_media
from eccache.app.demo.model import DEMO, build_model
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS

LOAD_SHARE: Final = 0.01
FRAMES: Final = (32, 128)
PEER: Final = "ECExampleConnector"
NOISE: Final = 1.02
"""No worse means not measurably worse."""


def rows(setting: Setting) -> Iterator[Row]:
    """Ask about a video of 32 and of 128 frames, before and after a restart, with two connectors."""
    frames = FRAMES[:1] if setting.quick else FRAMES
    made = make_media(setting.folder / "media", seconds=VIDEO_SECONDS)
    plan = Plan(
        model=str(build_model(setting.folder / "model", DEMO).directory),
        series=series_of([made.video], frames),
        connectors=(Connector.named("eccache"), Connector.named(PEER)),
        repetitions=1 if setting.quick else 3,
        arguments=(*SMALL_MODEL_ARGUMENTS, *SMALL_MODEL_ROOM),
        folder=setting.folder,
    )
    result = run_plan(plan, setting.progress)
    by_connector = {(one.connector, one.case): one for one in result.measured}
    for number, count in enumerate(frames):
        case = plan.series[number].cases[0].label
        yield from _of(by_connector["eccache", case], by_connector[PEER, case], f"{count} frames")


def _of(mine: Measured, theirs: Measured, size: str) -> Iterator[Row]:
    if mine.warm_seconds is None or theirs.warm_seconds is None:
        raise RuntimeError("a connector was not restarted")
    yield Row(
        operation="first token after a restart",
        size=size,
        target=f"<= {NOISE} x peer",
        measured=mine.warm_seconds,
        peer=PEER,
        peer_measured=theirs.warm_seconds,
        ratio=mine.warm_seconds / theirs.warm_seconds,
        met=mine.warm_seconds <= NOISE * theirs.warm_seconds,
        used=mine.warm_seconds / theirs.warm_seconds / NOISE,
        note=f"cold {mine.cold_seconds:.2f} s, {mine.speed_up:.2f} x sooner",
    )
    if mine.load_share is None or mine.load_seconds is None:
        raise RuntimeError("vLLM does not tell the encoder's time")
    yield Row(
        operation="a worker's load, beside the encoder's time that it replaces",
        size=size,
        target="<= 1 % of peer",
        measured=mine.load_seconds,
        peer="encoder",
        peer_measured=mine.encoder_seconds,
        ratio=mine.load_share,
        met=mine.load_share <= LOAD_SHARE,
        used=mine.load_share / LOAD_SHARE,
    )
