"""Two thousand requests wait and nearly all miss: what the connector costs vLLM's own scheduler.

The scheduler, the connector's two sides, the ledger, the store and the copies are the real ones. The model
is not there: a step lasts a fixed time, which is slept, as a scheduler's process waits for a device.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

import attrs

from bench.micro.serving import Connectors, make_request, make_scheduler, run_step, store_pictures
from bench.rows import Row
from bench.setting import Setting

FACTOR: Final = 1.05
REQUESTS: Final = 2000
HIT_EVERY: Final = 10
STEP_SECONDS: Final = 0.005
ANSWER_TOKENS: Final = 32
NOTE: Final = "the scheduler is real; a step of the model is 5 ms of sleep, an answer has 32 tokens"


@attrs.define
class _Outcome:
    """One run.

    Attributes:
        step_seconds: What the scheduler took of each step, without the device's time.
        first_token_seconds: From the arrival of all to each request's first token.
    """

    step_seconds: list[float] = attrs.field(factory=list)
    first_token_seconds: list[float] = attrs.field(factory=list)

    @property
    def mean_step(self) -> float:
        """Mean of the scheduler's time a step."""
        return statistics.fmean(self.step_seconds)

    @property
    def first_token_p95(self) -> float:
        """95th percentile of the times to first token."""
        return statistics.quantiles(self.first_token_seconds, n=20)[-1]


def rows(setting: Setting) -> Iterator[Row]:
    """Run alternately with and without the connector."""
    count = 100 if setting.quick else REQUESTS
    with contextlib.closing(Connectors(setting.folder)) as connectors:
        store_pictures(connectors, range(0, count, HIT_EVERY))
        runs: dict[str, list[_Outcome]] = {"with": [], "without": []}
        for number in range(-1, setting.rounds(9)):
            for name in list(runs)[:: 1 if number % 2 else -1]:
                outcome = _run(connectors, count, connected=name == "with")
                if number >= 0:
                    runs[name].append(outcome)
    for operation, figure in (
        ("scheduler's time a step", "mean_step"),
        ("time to first token, p95", "first_token_p95"),
    ):
        mine, theirs = (
            [getattr(outcome, figure) for outcome in runs[name]] for name in ("with", "without")
        )
        ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
        yield Row(
            operation=operation,
            size=f"{count:,} waiting, 90 % miss",
            target=f"<= {FACTOR} x peer",
            measured=statistics.median(mine),
            peer="no connector",
            peer_measured=statistics.median(theirs),
            ratio=ratio,
            met=ratio <= FACTOR,
            used=ratio / FACTOR,
            note=NOTE,
        )


def _run(connectors: Connectors, count: int, *, connected: bool) -> _Outcome:
    """Let all requests arrive, and step until each has its answer."""
    scheduler = make_scheduler(connectors.config, connectors.scheduler if connected else None)
    for number in range(count):
        scheduler.add_request(make_request(number, answer_tokens=ANSWER_TOKENS))
    outcome = _Outcome()

    def work(step: Any) -> Any:
        return connectors.work(step, ()) if connected else None

    connectors.clear_accelerator(range(count))
    gc.collect()
    gc.freeze()  # as vLLM's engine does once it is up
    try:
        begin = time.perf_counter()
        while scheduler.has_unfinished_requests():
            seconds, first_tokens, ran = run_step(scheduler, work, model_seconds=STEP_SECONDS)
            if ran:  # a step in which all wait is no step of the device
                outcome.step_seconds.append(seconds)
            outcome.first_token_seconds += [time.perf_counter() - begin] * first_tokens
    finally:
        gc.unfreeze()
    return outcome
