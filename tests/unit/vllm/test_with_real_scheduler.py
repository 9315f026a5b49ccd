"""Both sides under vLLM's real scheduler, with runners that fail where a real one would die."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm.v1.request import Request, RequestStatus

from tests.unit.vllm.conftest import MakeConfig
from tests.unit.vllm.engine import BLOCK_TOKENS, Engine
from tests.unit.vllm.pair import UnguardedConnector, World
from tests.unit.vllm.requests import Input, digest, make_request
from tests.unit.vllm.runners import EncoderCacheMissError, FirstRunner, SecondRunner

A, B, C = digest(1), digest(2), digest(3)
RUNNERS = {"first runner": FirstRunner, "second runner": SecondRunner}


class Held:
    """vLLM's configuration where hypothesis would print it, which takes seconds and fails."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def __repr__(self) -> str:
        return "Held(...)"


@pytest.fixture(scope="module")
def config(make_config: MakeConfig) -> Any:
    """Prefix caching on: it makes requests start in the middle."""
    return make_config(enable_prefix_caching=True)


@pytest.fixture(scope="module")
def held(config: Any) -> Held:
    """The same, kept from being printed."""
    return Held(config)


@pytest.fixture(params=list(RUNNERS.values()), ids=list(RUNNERS))
def runner(request: pytest.FixtureRequest) -> type[FirstRunner]:
    """Each of vLLM's two runners."""
    kind: type[FirstRunner] = request.param
    return kind


def engine(config: Any, world: World, runner: type[FirstRunner], **sizes: Any) -> Engine:
    """An engine on *world* with one runner for each rank."""
    connectors = [
        UnguardedConnector.worker(config, world, primary=rank == 0) for rank in range(world.ranks)
    ]
    return Engine(
        config,
        UnguardedConnector.scheduler(config, world),
        [runner(connector) for connector in connectors],
        **sizes,
    )


def test_a_restarted_engine_runs_no_encoder(config: Any, runner: type[FirstRunner]) -> None:
    """What one engine stored the next one loads: two inputs, one twice, one behind a long text."""
    world = World()

    def question(engine: Engine) -> Request:
        inputs = (Input(id=A, offset=0), Input(id=A, offset=10), Input(id=B, offset=200))
        return make_request("r", *inputs, block_hasher=engine.block_hasher)

    cold = engine(config, world, runner)
    cold.serve(question(cold))
    assert [A, B] == cold.runners[0].encoded
    warm = engine(config, world, runner)
    warm.serve(question(warm))
    assert ([], [A, B]) == (warm.runners[0].encoded, sorted(warm.runners[0].loaded))
    assert {} == world.open_copies


def test_chunked_prompts_load_what_they_need(config: Any, runner: type[FirstRunner]) -> None:
    """With a small token budget an input lies across steps, and is loaded once."""
    world = World()
    world.stored = {A: 40, B: 40}
    chunked = engine(config, world, runner, budget_tokens=16)
    inputs = (Input(id=A, offset=5, rows=40), Input(id=B, offset=60, rows=40))
    chunked.serve(make_request("r", *inputs, block_hasher=chunked.block_hasher))
    assert ([], [A, B]) == (chunked.runners[0].encoded, sorted(chunked.runners[0].loaded))


def test_every_rank_loads_and_one_saves(config: Any, runner: type[FirstRunner]) -> None:
    """With two ranks a copy is open until both have acknowledged it; an entry is written once."""
    world = World(ranks=2)
    cold = engine(config, world, runner)
    cold.serve(make_request("r", Input(id=A, offset=0), block_hasher=cold.block_hasher))
    stats = cold.scheduler.ec_connector.side.take_stats()
    assert {"stored": 1} == stats.data
    warm = engine(config, world, runner)
    warm.serve(make_request("r", Input(id=A, offset=0), block_hasher=warm.block_hasher))
    assert [[A], [A]] == [rank.loaded for rank in warm.runners]
    assert {} == world.open_copies


def test_deferred_requests_do_not_hold_up_others(config: Any, runner: type[FirstRunner]) -> None:
    """While one request waits for its look-up another one is served to its end."""
    world = World()
    world.stored, world.slow = {A: 4}, {A}
    busy = engine(config, world, runner)
    waiting = busy.add(make_request("w", Input(id=A, offset=0), block_hasher=busy.block_hasher))
    other = busy.add(make_request("o", Input(id=B, offset=0), block_hasher=busy.block_hasher))
    for _ in range(5):
        busy.step()
    assert (True, False) == (other.is_finished(), waiting.is_finished())
    world.slow = set()
    busy.run()
    assert [A] == busy.runners[0].loaded


def test_a_deferred_request_can_be_aborted(config: Any, runner: type[FirstRunner]) -> None:
    """A client that goes away leaves nothing behind."""
    world = World()
    world.stored, world.slow = {A: 4}, {A}
    busy = engine(config, world, runner)
    busy.add(make_request("w", Input(id=A, offset=0), block_hasher=busy.block_hasher))
    busy.step()
    busy.abort("w")
    busy.run()
    assert ({}, {}) == (world.ready, busy.scheduler.ec_connector.side._tracked)  # noqa: SLF001


def test_a_request_without_media_is_failed_alone(
    make_config: MakeConfig, runner: type[FirstRunner]
) -> None:
    """Nothing can supply its encoder output: it ends with an error, the engine and others live."""
    config = make_config("ec_consumer")
    world = World()
    world.stored = {B: 4}
    consumer = engine(config, world, runner)
    grid = {"image_grid_thw": torch.tensor([1, 8, 8])}
    lost = make_request("lost", Input(id=A, offset=0, fields=grid))
    found = make_request("found", Input(id=B, offset=0, fields=grid))
    consumer.serve(lost, found)
    assert RequestStatus.FINISHED_ERROR == lost.status
    assert RequestStatus.FINISHED_LENGTH_CAPPED == found.status
    assert [] == consumer.runners[0].encoded


def test_a_reused_id_of_another_size_is_never_given_the_stored_rows(
    config: Any, runner: type[FirstRunner]
) -> None:
    """4 rows are stored, 9 are needed under the same id: the encoder runs."""
    world = World()
    world.stored = {A: 4}
    reused = engine(config, world, runner)
    reused.serve(
        make_request("long", Input(id=A, offset=0, rows=9), block_hasher=reused.block_hasher)
    )
    assert ([A], []) == (reused.runners[0].encoded, reused.runners[0].loaded)


def test_the_stand_in_dies_of_a_broken_promise(config: Any, runner: type[FirstRunner]) -> None:
    """The tests above mean something: a promised input that is not loaded kills the runner."""
    world = World()
    world.stored = {A: 4}
    broken = engine(config, world, runner)
    broken.runners[0].connector.start_load_caches = lambda *_, **__: None
    broken.add(make_request("r", Input(id=A, offset=0), block_hasher=broken.block_hasher))
    with pytest.raises(EncoderCacheMissError):
        broken.run()


def test_clearing_the_accelerator_is_survived(config: Any, runner: type[FirstRunner]) -> None:
    """The host clears its encoder cache without telling its connector."""
    world = World()
    cleared = engine(config, world, runner)
    for name in "xyz":
        cleared.serve(make_request(name, Input(id=A, offset=0), block_hasher=cleared.block_hasher))
        cleared.scheduler.reset_prefix_cache()
        cleared.scheduler.reset_encoder_cache()
        cleared.runners[0].encoder_cache.clear()
    assert [RequestStatus.FINISHED_LENGTH_CAPPED] * 3 == [r.status for r in cleared.requests]


arrivals = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=3),
        st.booleans(),  # salted
        st.integers(1, 40),  # tokens to make
        st.sampled_from(["", "", "", "abort", "preempt", "clear"]),
    ),
    min_size=1,
    max_size=12,
)


@given(
    arrivals=arrivals,
    slow=st.lists(st.integers(0, 5)),
    kind=st.sampled_from(list(RUNNERS)),
    sizes=st.fixed_dictionaries(
        {
            "encoder_cache_size": st.integers(12, 40),
            "budget_tokens": st.integers(8, 64),
            "blocks": st.integers(20, 40),
        }
    ),
    ranks=st.integers(1, 2),
)
def test_whatever_happens_every_promise_is_kept(
    held: Held,
    arrivals: list[tuple[list[tuple[int, int]], bool, int, str]],
    slow: list[int],
    kind: str,
    sizes: dict[str, int],
    ranks: int,
) -> None:
    """Whatever is evicted, preempted, aborted or slow: no runner misses an input, no copy is left."""
    world = World(ranks)
    world.slow = {digest(number) for number in slow}
    stressed = engine(held.config, world, RUNNERS[kind], **sizes)
    for number, (inputs, salted, tokens, event) in enumerate(arrivals):
        offset, placed = 3, []
        for which, gap in inputs:
            rows = 2 + which  # an id has its own size
            placed.append(Input(id=digest(which), offset=offset + gap, rows=rows))
            offset += gap + rows
        request = make_request(
            str(number),
            *placed,
            prompt_tokens=offset + BLOCK_TOKENS,
            max_tokens=tokens,
            salt="tenant" if salted else None,
            block_hasher=stressed.block_hasher,
        )
        stressed.add(request)
        stressed.step()
        if event == "abort":
            stressed.abort(str(number // 2))
        elif event == "preempt":
            stressed.scheduler.reset_prefix_cache(reset_running_requests=True)
        elif event == "clear" and not stressed.scheduler.running:
            stressed.scheduler.reset_encoder_cache()
            for runner in stressed.runners:
                runner.encoder_cache.clear()
        if world.slow:
            world.slow.pop()
    world.slow.clear()
    stressed.run()
    side = stressed.scheduler.ec_connector.side
    assert all(request.is_finished() for request in stressed.requests)
    assert ({}, {}) == (world.ready, world.open_copies)
    assert ({}, {}, {}) == (side._tracked, side._by_item, side._claimed)  # noqa: SLF001
