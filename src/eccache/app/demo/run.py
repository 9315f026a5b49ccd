"""The whole demo: a real server answers, is stopped, starts again, and answers from the cache."""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from eccache.app.demo import media
from eccache.app.demo.client import Answer, ChatClient, Medium, Question
from eccache.app.demo.model import DEMO, ModelSize, build_model
from eccache.app.demo.report import transfer_config
from eccache.app.demo.result import DemoResult
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS, Progress, ServerSettings, VllmServer

MODEL_NAME: Final = "demo"
MARKER: Final = "made-by-eccache-demo"
NEEDED: Final = {
    "vllm": "vllm-cpu",
    "openai": "demo",
    "cv2": "demo",
    "skimage": "demo",
}
"""Packages that the demo imports, and the extra that brings each."""

HITS: Final = "vllm:eccache_hits_total"
WRITE_TIMEOUT_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.1


class DemoError(RuntimeError):
    """The demo cannot run here; the message says why and what to do."""


@attrs.frozen
class _Round:
    """What one life of the server answered."""

    video: Answer
    photo: Answer
    hits: int


@attrs.frozen
class _Questions:
    warm_up: tuple[Question, ...]
    video: Question
    photo: Question

    @property
    def encoder_outputs(self) -> int:
        """Encoder outputs that a server with an empty cache computes and stores."""
        return sum(len(question.media) for question in (*self.warm_up, self.video, self.photo))


def run_demo(directory: Path, progress: Progress, *, size: ModelSize = DEMO) -> DemoResult:
    """Run the demo; takes one to three minutes.

    Args:
        directory: Where model, media, store and logs go. What an earlier demo left there is removed.
        progress: Called with one line of text at each step, at least every few seconds.
        size: Size of the model.

    Returns:
        What was measured.

    Raises:
        DemoError: A package is missing, *directory* holds something else, or nothing was stored.
        ServerError: vLLM did not start.
    """
    begin = time.monotonic()
    _require_packages()
    _prepare(directory)
    store, logs = directory / "store", directory / "logs"

    progress("building a small Qwen2.5-VL with random weights")
    model = build_model(directory / "model", size)
    progress(f"built: {model.parameters / 1e6:.0f} million parameters in {model.directory}")
    progress("making a video and photographs")
    questions = _ask_about(media.make_media(directory / "media"))

    settings = ServerSettings(
        model=str(model.directory),
        log_file=logs / "vllm.log",
        arguments=(
            *SMALL_MODEL_ARGUMENTS,
            *("--served-model-name", MODEL_NAME),
            "--no-enable-prefix-caching",  # so that what is measured is the encoder cache alone
            *("--ec-transfer-config", json.dumps(transfer_config(store))),
        ),
    )
    progress("starting vLLM with an empty cache")
    cold = _round(
        settings,
        questions,
        progress,
        before_stop=lambda: wait_for_entries(store, questions.encoder_outputs, settings.log_file),
    )
    entries = _entries(store)
    progress(f"stopped; the cache holds {len(entries)} entries. Starting vLLM again")
    warm = _round(settings, questions, progress)
    progress("stopped")

    return DemoResult(
        cold_ttft_seconds=cold.video.ttft_seconds,
        warm_ttft_seconds=warm.video.ttft_seconds,
        photo_cold_ttft_seconds=cold.photo.ttft_seconds,
        photo_warm_ttft_seconds=warm.photo.ttft_seconds,
        hits=warm.hits,
        answers_equal=cold.video.text == warm.video.text and cold.photo.text == warm.photo.text,
        answers=(warm.video.text, warm.photo.text),
        entries=len(entries),
        bytes_stored=sum(entry.stat().st_size for entry in entries),
        model=model.directory,
        store=store,
        logs=logs,
        seconds=time.monotonic() - begin,
    )


def _require_packages() -> None:
    missing = [package for package in NEEDED if importlib.util.find_spec(package) is None]
    if missing:
        extras = ",".join(sorted({NEEDED[package] for package in missing}))
        raise DemoError(
            f"the demo needs {', '.join(missing)}, which cannot be imported here; "
            f"install with: pip install 'eccache[{extras}]'"
        )


def _prepare(directory: Path) -> None:
    """Empty a folder that an earlier demo made; refuse one that holds anything else."""
    marker = directory / MARKER
    if directory.exists() and not marker.exists() and any(directory.iterdir()):
        raise DemoError(
            f"{directory} holds files that no demo made; name an empty folder with --path"
        )
    for old in ("store", "logs", "model", "media"):
        if (directory / old).exists():
            shutil.rmtree(directory / old)
    directory.mkdir(parents=True, exist_ok=True)
    marker.touch()


def _ask_about(files: media.DemoMedia) -> _Questions:
    small = media.crop(media.photograph("rocket"), 56, zoom=1.0)
    return _Questions(
        warm_up=(
            Question("Hello."),
            Question("What is this?", (Medium("image/png", media.encode_picture(small, ".png")),)),
        ),
        video=Question("What happens in this video?", (Medium.from_file(files.video),)),
        photo=Question("What do you see in this photo?", (Medium.from_file(files.photo_jpeg),)),
    )


def _round(
    settings: ServerSettings,
    questions: _Questions,
    progress: Progress,
    before_stop: Callable[[], None] = lambda: None,
) -> _Round:
    """Start a server, ask everything once, stop it."""
    with VllmServer(settings, progress) as server:
        client = ChatClient(server.url, MODEL_NAME)
        # The first request of a process pays for buffers and kernels: not what is measured.
        for question in questions.warm_up:
            client.ask(question)
        hits_before = server.metrics().total(HITS)
        progress("asking about the video")
        video = client.ask(questions.video)
        progress(f"first token after {video.ttft_seconds:.2f} s; asking about the photo")
        photo = client.ask(questions.photo)
        progress(f"first token after {photo.ttft_seconds:.2f} s")
        hits = server.metrics().total(HITS) - hits_before
        before_stop()
    return _Round(video=video, photo=photo, hits=round(hits))


def wait_for_entries(store: Path, count: int, log_file: Path) -> None:
    """Wait for the background writer: vLLM ends its workers without notice."""
    end = time.monotonic() + WRITE_TIMEOUT_SECONDS
    while len(_entries(store)) < count:
        if time.monotonic() > end:
            raise DemoError(
                f"only {len(_entries(store))} of {count} encoder outputs were stored in {store}; "
                f"the server's log says why: {log_file}"
            )
        time.sleep(POLL_SECONDS)


def _entries(store: Path) -> list[Path]:
    return sorted(store.rglob("*.safetensors"))
