"""A real server that finds nothing cached: how much the connector costs it."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.rows import Row
from bench.setting import Setting
from eccache.app.demo import media
from eccache.app.demo.client import ChatClient, Medium, Question
from eccache.app.demo.model import DEMO, TINY, build_model
from eccache.app.demo.report import transfer_config
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS, ServerSettings, VllmServer

AT_LEAST: Final = 0.98
PICTURES: Final = 32
AT_ONCE: Final = 8
SIDE: Final = 224
NAME: Final = "measured"


def rows(setting: Setting) -> Iterator[Row]:
    """Send batches of pictures that nobody has seen to two servers in turn, one with the connector."""
    model = build_model(setting.folder / "model", TINY if setting.quick else DEMO).directory
    pictures = _new_pictures()
    count = AT_ONCE if setting.quick else PICTURES
    with (
        _server(setting, model, "without") as without,
        _server(setting, model, "with", setting.folder / "store") as connected,
    ):
        servers = {
            "with": ChatClient(connected.url, NAME),
            "without": ChatClient(without.url, NAME),
        }
        seconds: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(-1, setting.rounds(9)):
            batch = [next(pictures) for _ in range(count)]
            for name in list(servers)[:: 1 if number % 2 else -1]:
                taken = _serve(servers[name], batch)
                if number >= 0:
                    seconds[name].append(taken)
    pairs = zip(seconds["without"], seconds["with"], strict=True)
    ratio = statistics.median(without / connected for without, connected in pairs)
    yield Row(
        operation="vLLM's throughput with the connector, nothing cached",
        size=f"{count} pictures, {AT_ONCE} at once",
        target=f">= {AT_LEAST} x peer",
        measured=count / statistics.median(seconds["with"]),
        peer="no connector",
        peer_measured=count / statistics.median(seconds["without"]),
        ratio=ratio,
        met=ratio >= AT_LEAST,
        used=AT_LEAST / ratio,
        unit="1/s",
    )


def _server(setting: Setting, model: Path, name: str, store: Path | None = None) -> VllmServer:
    arguments = [*SMALL_MODEL_ARGUMENTS, "--served-model-name", NAME, "--no-enable-prefix-caching"]
    if store is not None:
        arguments += ["--ec-transfer-config", json.dumps(transfer_config(store))]
    return VllmServer(
        ServerSettings(
            model=str(model),
            log_file=setting.folder / f"{name}.log",
            arguments=arguments,
            start_timeout_seconds=900,
        ),
        setting.progress,
    )


def _new_pictures() -> Iterator[Medium]:
    """Yield photographs that differ from each other, so that none is ever cached."""
    rng = random.Random(0)
    for number in itertools.count():
        name = media.PHOTOGRAPHS[number % len(media.PHOTOGRAPHS)]
        square = media.crop(
            media.photograph(name), SIDE, zoom=rng.uniform(1, 3), shift=rng.uniform(0, 1)
        )
        yield Medium("image/png", media.encode_picture(square, ".png"))


def _serve(client: ChatClient, batch: list[Medium]) -> float:
    """Return the seconds until all pictures of *batch* are answered."""
    questions = [Question("What is this?", (medium,), max_tokens=4) for medium in batch]
    begin = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(client.ask, questions))
    return time.perf_counter() - begin
