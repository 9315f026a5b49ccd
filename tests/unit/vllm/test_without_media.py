"""Requests that carry no media, on a consumer: no encoder can help, and none may ever be asked to.

Real engine, connectors, ledger and store; the runner dies where vLLM's would.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.request import Request, RequestStatus

from tests.unit.promises.parts import until
from tests.unit.vllm.conftest import MakeConfig
from tests.unit.vllm.engine import Engine
from tests.unit.vllm.requests import Input, digest, make_request
from tests.unit.vllm.runners import FirstRunner, SecondRunner
from tests.unit.vllm.test_identity_matrix import Server, Site, encoded, stop

GRID: dict[str, Any] = {"image_grid_thw": torch.tensor([1, 8, 8])}
STORED = [digest(number) for number in range(1, 9)]
A, B, C = STORED[:3]
SERVED = RequestStatus.FINISHED_LENGTH_CAPPED


def bare(request_id: str, mm_hash: str = A) -> Request:
    """A request that carries the size of its picture's place only."""
    return make_request(request_id, Input(id=mm_hash, offset=0, fields=GRID))


@pytest.fixture
def site(make_config: MakeConfig, tmp_path: Path) -> Iterator[Site]:
    """A root on which a producer has stored some pictures."""
    with ExitStack() as stack:
        site = Site(tmp_path / "root", make_config, stack)
        producer = site.start(Server(arguments={"role": "ec_producer"}))
        encoded(producer, *[Input(id=one, offset=4 * n) for n, one in enumerate(STORED)])
        stop(producer)
        yield site


@pytest.fixture(params=[FirstRunner, SecondRunner])
def consumer(request: pytest.FixtureRequest, site: Site) -> Callable[..., Engine]:
    """Starts a consumer on that root, with either of vLLM's runners."""

    def start(extra: dict[str, Any] | None = None, **sizes: Any) -> Engine:
        engine = site.start(Server(arguments={"role": "ec_consumer"}, extra=extra or {}))
        scheduler, runner = engine.scheduler, engine.runners[0]
        return Engine(
            scheduler.vllm_config,
            scheduler.ec_connector,
            [request.param(runner.connector)],
            **sizes,
        )

    return start


def empty_the_accelerator(engine: Engine) -> None:
    """What vLLM does for other weights, and before it sleeps."""
    engine.scheduler.reset_encoder_cache()
    engine.runners[0].encoder_cache.clear()


def asked_in_a_step(side: Any, request: Request) -> bool:
    """Whether nothing is under way for *request*; the step has room for no other."""
    answer: bool = side.ensure_cache_available(request, 0)
    end_step(side)
    return answer


def end_step(side: Any) -> None:
    """What the scheduler does last in each step."""
    side.build_connector_meta(SimpleNamespace(free_encoder_mm_hashes=[]))


def test_an_output_evicted_in_the_very_step_needs_no_encoder(
    consumer: Callable[..., Engine],
) -> None:
    """One request's picture takes the room of another's, which is asked for later in the same step."""
    engine = consumer(encoder_cache_size=8)
    engine.serve(bare("a", A))
    engine.serve(bare("b", B))
    late = engine.add(bare("c", C))
    side = engine.scheduler.ec_connector._scheduler  # noqa: SLF001
    until(lambda: asked_in_a_step(side, late) or None)
    again = engine.add(bare("a again", A))
    engine.run()
    assert [SERVED] * 2 == [late.status, again.status]
    assert [] == engine.runners[0].encoded


def test_after_a_reset_a_request_fails_and_not_the_engine(consumer: Callable[..., Engine]) -> None:
    """What lay on the accelerator before lies there no more."""
    engine = consumer()
    engine.serve(bare("before"))
    empty_the_accelerator(engine)
    after = bare("after")
    engine.serve(after)
    assert RequestStatus.FINISHED_ERROR == after.status


def test_a_request_under_way_fails_after_a_reset(consumer: Callable[..., Engine]) -> None:
    """It was settled, waits for memory, and what it relied on is gone."""
    engine = consumer()
    engine.serve(bare("before"))
    waiting = bare("waiting")
    side = engine.scheduler.ec_connector._scheduler  # noqa: SLF001
    assert side.ensure_cache_available(waiting, 0), "it lies on the accelerator"
    end_step(side)
    empty_the_accelerator(engine)
    engine.serve(waiting)
    assert RequestStatus.FINISHED_ERROR == waiting.status


def test_with_an_operators_word_every_reset_leads_to_a_look_up(
    consumer: Callable[..., Engine],
) -> None:
    """A server that sleeps and wakes with the weights it had: the same picture before and after."""
    engine = consumer({"fixed_weights": True})
    for number in range(4):
        request = bare(f"{number}")
        engine.serve(request)
        assert SERVED == request.status
        empty_the_accelerator(engine)
    assert [A] * 4 == engine.runners[0].loaded


def test_a_flood_is_served_and_not_failed(consumer: Callable[..., Engine]) -> None:
    """More requests than may be deferred come at once, each of which has nothing but the cache."""
    engine = consumer({"max_deferred_requests": 2})
    flood = [bare(f"{number}", STORED[number % len(STORED)]) for number in range(40)]
    engine.serve(*flood)
    assert [SERVED] * 40 == [request.status for request in flood]


def test_want_of_room_is_no_want_of_an_entry(consumer: Callable[..., Engine]) -> None:
    """Copies fit one at a time, and nobody waits long enough: still everybody is served."""
    engine = consumer({"max_promised_size": 9000 / (1 << 30), "lookup_timeout_seconds": 0.01})
    flood = [bare(f"{number}", one) for number, one in enumerate(STORED)]
    engine.serve(*flood)
    assert [SERVED] * len(STORED) == [request.status for request in flood]


def test_a_copy_too_old_is_made_again(consumer: Callable[..., Engine]) -> None:
    """A request that waits for memory for longer than a promise lasts."""
    engine = consumer({"promise_ttl_seconds": 0.001})
    side = engine.scheduler.ec_connector._scheduler  # noqa: SLF001
    waiting = engine.add(bare("waiting"))
    until(lambda: asked_in_a_step(side, waiting) or None)

    def is_given_up() -> bool | None:
        end_step(side)
        return None if side._lookup.is_promised(A) else True  # noqa: SLF001

    until(is_given_up)
    engine.run()
    assert SERVED == waiting.status


def test_what_is_nowhere_fails_at_once(consumer: Callable[..., Engine]) -> None:
    """Looking again would change nothing."""
    engine = consumer()
    lost = engine.add(bare("lost", digest(99)))
    for _ in range(2):
        engine.step()
    assert RequestStatus.FINISHED_ERROR == lost.status


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "extra",
    [
        {"fixed_weights": True},
        {
            "max_deferred_requests": 2,
            "max_promised_size": 12_000 / (1 << 30),
            "lookup_timeout_seconds": 0.1,
        },
    ],
    ids=["resets", "little room"],
)
def test_whatever_happens_none_reaches_an_encoder(
    consumer: Callable[..., Engine], seed: int, extra: dict[str, Any]
) -> None:
    """Evicted, preempted, aborted, emptied, absent: each request is served or fails, and the engine lives."""
    chance = random.Random(seed)
    engine = consumer(extra, blocks=16, encoder_cache_size=12, budget_tokens=32)
    for number in range(60):
        offset, inputs = 1, []
        for _ in range(chance.randint(1, 3)):
            offset += chance.randint(0, 9)
            which = digest(chance.randint(1, len(STORED) + 1))  # one of them is stored nowhere
            inputs.append(Input(id=which, offset=offset, fields=GRID))
            offset += 4
        engine.add(
            make_request(
                f"{number}",
                *inputs,
                prompt_tokens=offset + chance.randint(1, 30),
                max_tokens=chance.randint(1, 20),
                block_hasher=engine.block_hasher,
            )
        )
        for _ in range(chance.randint(1, 4)):
            engine.step()
        event = chance.random()
        if event < 0.1:
            engine.abort(f"{chance.randint(0, number)}")
        elif event < 0.2:
            engine.scheduler.reset_prefix_cache(reset_running_requests=True)
            if "fixed_weights" in extra:
                empty_the_accelerator(engine)
    engine.run()
    assert [] == engine.runners[0].encoded
    assert all(request.is_finished() for request in engine.requests)
    assert any(SERVED == request.status for request in engine.requests)
