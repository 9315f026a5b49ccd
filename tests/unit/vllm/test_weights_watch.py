"""Weights that are replaced in a running server: what is foreseen, and what is seen."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eccache.adapters.vllm.ranks import Rank
from eccache.adapters.vllm.reachability import Beacon, BeaconWatch
from eccache.adapters.vllm.weights_watch import ResetWatch, foreseen_replacement
from eccache.domain.errors import ConfigError
from tests.unit.vllm.conftest import MakeConfig

Cache = dict[str, torch.Tensor]


class Seen:
    """A watched cache, and how often its emptying was seen."""

    def __init__(self) -> None:
        self.times = 0
        self.cache: Cache = {"input": torch.zeros(3)}
        self.watch = ResetWatch(lambda: torch.empty(0), self._count)
        self.watch.watch(self.cache)

    def _count(self) -> None:
        self.times += 1


def _first_runner_resets(cache: Cache) -> None:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    runner: Any = SimpleNamespace(
        encoder_cache=cache, late_interaction_runner=SimpleNamespace(clear=lambda: None)
    )
    GPUModelRunner.reset_encoder_cache(runner)


def _second_runner_resets(cache: Cache) -> None:
    from vllm.v1.worker.gpu.mm.encoder_cache import EncoderCache

    encoder_cache = EncoderCache()
    encoder_cache.encoder_outputs = cache
    encoder_cache.reset_encoder_cache()


@pytest.mark.parametrize("reset", [_first_runner_resets, _second_runner_resets])
def test_a_reset_is_seen_while_it_happens(reset: Callable[[Cache], None]) -> None:
    """By vLLM's own code of both runners: before the call returns, and once."""
    seen = Seen()
    assert not seen.watch.happened
    reset(seen.cache)
    assert (1, True) == (seen.times, seen.watch.happened)
    seen.watch.watch(seen.cache)
    seen.cache.clear()
    assert 1 == seen.times


def test_ordinary_steps_are_no_reset() -> None:
    """Inputs come and go, the watch is renewed in each step, garbage is collected."""
    seen = Seen()
    for step in range(100):
        seen.watch.watch(seen.cache)
        seen.cache[f"{step}"] = torch.zeros(1)
        seen.cache.pop(f"{step - 3}", None)
    seen.cache.pop("input")
    gc.collect()
    assert (0, False) == (seen.times, seen.watch.happened)


def test_the_marker_has_a_name_that_no_input_has() -> None:
    """Nor another worker's marker: a client can't take it out by naming its input after it."""
    names = {next(name for name in Seen().cache if name != "input") for _ in range(10)}
    assert 10 == len(names)
    assert all(len(name) > 32 for name in names)


def test_the_end_of_a_worker_is_no_reset() -> None:
    """After closing, nobody is told."""
    seen = Seen()
    seen.watch.close()
    seen.watch.close()
    seen.cache.clear()
    assert 0 == seen.times
    ResetWatch(lambda: torch.empty(0), seen._count).close()  # noqa: SLF001 - one that never watched


def test_each_reset_can_be_seen_where_none_counts_for_good() -> None:
    """For an operator who says that weights stay: outputs are gone each time, and nothing else is."""
    seen = Seen()
    watch = ResetWatch(lambda: torch.empty(0), seen._count, once=False)  # noqa: SLF001
    for times in range(1, 4):
        cache: Cache = {}
        watch.watch(cache)
        watch.watch(cache)
        cache.clear()
        cache.clear()
        assert (times, False) == (seen.times, watch.happened)
    watch.close()


def test_what_may_replace_weights_is_foreseen(make_config: MakeConfig, both_config: Any) -> None:
    """Weight transfer and worker extensions, which is how trainers push weights."""
    assert "" == foreseen_replacement(both_config)
    extended = make_config(worker_extension_cls="trl.scripts.vllm_serve.WeightSyncWorkerExtension")
    assert "trl.scripts.vllm_serve" in foreseen_replacement(extended)
    from vllm.config import WeightTransferConfig

    transferring = make_config(weight_transfer_config=WeightTransferConfig(backend="ipc"))
    assert "--weight-transfer-config" in foreseen_replacement(transferring)


# --- from a worker to its scheduler ---------------------------------------------------------------------


@pytest.fixture
def token(request: pytest.FixtureRequest) -> str:
    """A name for this test's engine."""
    return f"test-{os.getpid()}-{request.node.name}"


def test_a_beacon_is_lit_until_it_goes_out(token: str) -> None:
    """Every watcher sees it at once, and for good."""
    beacon = Beacon(token, Rank())
    watches = [BeaconWatch(token, Rank()) for _ in range(3)]
    assert all(watch.is_lit() for watch in watches for _ in range(3))
    beacon.close()
    beacon.close()
    assert not any(watch.is_lit() for watch in watches for _ in range(3))
    for watch in watches:
        watch.close()
        watch.close()
    assert not watches[0].is_lit()


def test_a_beacon_can_blink(token: str) -> None:
    """Whoever watches sees it once for each time, and goes on watching."""
    beacon, watch = Beacon(token, Rank()), BeaconWatch(token, Rank())
    for _ in range(20):  # more than a backlog
        assert not watch.blinked()
        beacon.blink()
        assert [True, False, False] == [watch.blinked() for _ in range(3)]
    beacon.close()
    assert watch.blinked()
    assert watch.blinked(), "what is out stays out"
    watch.close()


def test_a_child_of_the_worker_does_not_keep_its_beacon_lit(token: str) -> None:
    """A process that was forked from the worker has inherited the socket."""
    beacon, (reading, writing) = Beacon(token, Rank()), os.pipe()
    watch = BeaconWatch(token, Rank())
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)  # until the test lets go
        os._exit(0)
    try:
        beacon.close()
        assert not watch.is_lit()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
        watch.close()


def test_without_a_beacon_there_is_no_watch(token: str) -> None:
    """A worker that does not show itself can't be watched over."""
    with pytest.raises(ConfigError, match="can't watch over its worker"):
        BeaconWatch(token, Rank())


def test_each_rank_has_a_beacon_of_its_own(token: str) -> None:
    """One that goes out leaves the others lit."""
    beacons = [Beacon(token, Rank(tensor=tensor)) for tensor in range(2)]
    watches = [BeaconWatch(token, Rank(tensor=tensor)) for tensor in range(2)]
    beacons[0].close()
    assert [False, True] == [watch.is_lit() for watch in watches]
    for watch, beacon in zip(watches, beacons, strict=True):
        watch.close()
        beacon.close()
