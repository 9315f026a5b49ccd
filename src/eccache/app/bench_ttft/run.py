"""Starts servers, asks, stops them, and starts them again."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from eccache.app.bench_ttft import encoder_time
from eccache.app.bench_ttft.plan import Case, Connector, Plan, Series
from eccache.app.bench_ttft.result import Measured, Sample, TtftResult
from eccache.app.demo.client import ChatClient, Question
from eccache.app.demo.plugin import lay_out_plugin
from eccache.app.demo.server import Progress, ServerSettings, VllmServer

SERVED_NAME: Final = "measured"
LOAD_SECONDS: Final = "vllm:eccache_load_seconds_sum"
STORED_TIMEOUT_SECONDS: Final = 60.0
SETTLED_SECONDS: Final = 1.0
POLL_SECONDS: Final = 0.1


class MeasurementError(RuntimeError):
    """Something that should have been stored was not; the message says where to look."""


def run_plan(plan: Plan, progress: Progress) -> TtftResult:
    """Carry out *plan*; takes as long as its servers take to start, and a little more.

    Args:
        plan: What to measure.
        progress: Called with one line of text at each step.

    Raises:
        ServerError: vLLM did not start.
        MeasurementError: Nothing was stored.
    """
    cold: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    warm: defaultdict[tuple[str, str], list[Sample]] = defaultdict(list)
    for repetition in range(plan.repetitions):
        for number, series in enumerate(plan.series):
            # Connectors next to each other: a machine that becomes slower is so for all.
            for connector in plan.connectors:
                store = plan.folder / "store"
                shutil.rmtree(store, ignore_errors=True)
                store.mkdir()
                log_file = plan.folder / "logs" / f"{connector.name}-{number}-{repetition}.log"
                settings = _settings(plan, series, connector, store, log_file)
                progress(f"{connector.name}: starting a server with an empty store")
                samples = _ask_all(settings, series, store, progress)
                if connector.transfer is not None:
                    _require_stored(store, len(series.cases), log_file)
                for case, sample in zip(series.cases, samples, strict=True):
                    cold[case.label, connector.name].append(sample)
                if connector.transfer is None:
                    continue
                progress(f"{connector.name}: starting it again")
                samples = _ask_all(settings, series, store, progress)
                for case, sample in zip(series.cases, samples, strict=True):
                    warm[case.label, connector.name].append(sample)
                shutil.rmtree(store, ignore_errors=True)
    return TtftResult(
        model=plan.model,
        machine=machine_line(),
        measured=tuple(
            Measured(case=case, connector=name, cold=tuple(samples), warm=tuple(warm[case, name]))
            for (case, name), samples in cold.items()
        ),
    )


def _settings(
    plan: Plan, series: Series, connector: Connector, store: Path, log_file: Path
) -> ServerSettings:
    return ServerSettings(
        model=plan.model,
        log_file=log_file,
        arguments=(
            *("--served-model-name", SERVED_NAME),
            "--no-enable-prefix-caching",  # or a repeated prompt would be answered without an encoder
            *series.arguments,
            *connector.arguments(store),
            *plan.arguments,
        ),
        environment=encoder_time.ENVIRONMENT,
        python_path=(str(lay_out_plugin(encoder_time.PLUGIN, plan.folder / "plugin")),),
        start_timeout_seconds=plan.start_timeout_seconds,
    )


def _ask_all(
    settings: ServerSettings, series: Series, store: Path, progress: Progress
) -> list[Sample]:
    """Start a server, warm it up, ask everything once, wait for its writes, stop it."""
    with VllmServer(settings, progress) as server:
        client = ChatClient(server.url, SERVED_NAME)
        progress("warming up")
        client.ask(Question("Hello."))
        for case in series.cases:
            client.ask(case.warm_up())
        encoder_time.take_encoder_seconds(server.url)
        samples = [_ask(server, client, case, progress) for case in series.cases]
        # The server's own writes are in the background, and its workers end without notice.
        _wait_until_settled(store)
    return samples


def _ask(server: VllmServer, client: ChatClient, case: Case, progress: Progress) -> Sample:
    before = server.metrics().total(LOAD_SECONDS)
    answer = client.ask(case.question)
    encoder_seconds = encoder_time.take_encoder_seconds(server.url)
    load_seconds = server.metrics().total(LOAD_SECONDS) - before
    shown = "" if encoder_seconds is None else f", of which the encoder {encoder_seconds:.3f} s"
    progress(f"{case.label}: first token after {answer.ttft_seconds:.3f} s{shown}")
    return Sample(
        ttft_seconds=answer.ttft_seconds,
        encoder_seconds=encoder_seconds,
        load_seconds=load_seconds or None,
        text=answer.text,
    )


def _wait_until_settled(store: Path) -> None:
    """Wait until no file has come or grown for a while."""
    before: dict[Path, int] = {}
    changed = begin = time.monotonic()
    while time.monotonic() - changed < SETTLED_SECONDS:
        if time.monotonic() - begin > STORED_TIMEOUT_SECONDS:
            return
        now = {path: path.stat().st_size for path in store.rglob("*.safetensors")}
        if now != before:
            before, changed = now, time.monotonic()
        time.sleep(POLL_SECONDS)


def _require_stored(store: Path, count: int, log_file: Path) -> None:
    stored = sum(1 for _ in store.rglob("*.safetensors"))
    if stored < count:
        msg = f"only {stored} of {count} encoder outputs were stored; the server's log: {log_file}"
        raise MeasurementError(msg)


def machine_line() -> str:
    """Return in words where this runs."""
    accelerator = "no accelerator"
    names = Path("/proc/driver/nvidia/gpus")
    if names.is_dir():
        models = [
            line.partition(":")[2].strip()
            for information in sorted(names.glob("*/information"))
            for line in information.read_text(encoding="utf-8").splitlines()
            if line.startswith("Model:")
        ]
        accelerator = f"{len(models)} x {models[0]}" if models else accelerator
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {accelerator}, {cores} cores, "
        f"{platform.system()} {platform.release()}, load {load:.1f}"
    )
