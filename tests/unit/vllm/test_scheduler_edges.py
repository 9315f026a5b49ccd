"""The scheduler's side where calls come at unusual moments."""

from typing import Any

import pytest
import torch

from eccache.adapters.vllm.scheduler_side import SchedulerRole
from tests.unit.vllm.requests import Input, digest, make_request
from tests.unit.vllm.test_scheduler_side import Desk

A, B = digest(1), digest(2)
GRID_ONLY: dict[str, Any] = {"image_grid_thw": torch.tensor([1, 8, 8])}


@pytest.fixture
def desk() -> Desk:
    """A server that stores and serves."""
    return Desk()


def test_a_producer_promises_nothing_even_if_a_copy_were_there() -> None:
    """The role decides, not what is at hand."""
    desk = Desk(SchedulerRole(saves=True, loads=False))
    desk.lookup.ready = {A: {"r"}}
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0)), 0)
    assert desk.side.has_cache_item(A) is False


def test_between_steps_nobody_asks(desk: Desk) -> None:
    """A question that belongs to no request of this step is a miss."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0)), 0)
    desk.end_step()
    assert desk.side.has_cache_item(A) is False


def test_a_promise_that_was_not_taken_ends_with_its_step(desk: Desk) -> None:
    """True was said, memory was short; in a later step the input of a salted request is no load."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0)), 0)
    assert desk.side.has_cache_item(A)
    desk.end_step()
    salted = make_request("s", Input(id=A, offset=0), salt="tenant")
    desk.side.ensure_cache_available(salted, 0)
    desk.side.update_state_after_alloc(salted, 0)
    assert () == desk.end_step().loads


def test_a_promise_that_was_not_taken_ends_with_the_next_request(desk: Desk) -> None:
    """True was said, memory was short; in the same step the input of a salted request is no load."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0)), 0)
    assert desk.side.has_cache_item(A)
    salted = make_request("s", Input(id=A, offset=0), salt="tenant")
    for _ in range(2):  # at first sight, and when there is nothing more to do
        desk.side.ensure_cache_available(salted, 0)
        desk.side.update_state_after_alloc(salted, 0)
    assert () == desk.end_step().loads


def test_a_request_that_can_not_be_looked_at_gets_nobody_elses_promise(desk: Desk) -> None:
    """The fault is absorbed one level up, and vLLM goes on with the request."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0)), 0)
    broken = make_request("b", Input(id=A, offset=0, rows=9))
    broken.mm_features[0].mm_position = None
    with pytest.raises(AttributeError):
        desk.side.ensure_cache_available(broken, 0)
    assert desk.side.has_cache_item(A) is False


def test_an_untaken_promise_can_be_given_again(desk: Desk) -> None:
    """It is asked for anew in each step until there is memory; the copy is there all the while."""
    desk.lookup.stored = {A}
    request = make_request("r", Input(id=A, offset=0))
    for _ in range(3):
        desk.side.ensure_cache_available(request, 0)
        assert desk.side.has_cache_item(A)
        desk.end_step()
    assert 1 == len(desk.lookup.ensured)


def test_an_aborted_request_is_not_given_up_too(desk: Desk) -> None:
    """A request that went away before it could be failed is failed no more."""
    request = make_request("r", Input(id=A, offset=0, fields=GRID_ONLY))
    desk.side.ensure_cache_available(request, 0)
    desk.side.request_finished(request)
    assert set() == desk.side.take_unavailable_requests()


def test_a_request_is_given_up_once(desk: Desk) -> None:
    """Until vLLM has failed it, it stays deferred, and is named no second time."""
    request = make_request("r", Input(id=A, offset=0, fields=GRID_ONLY))
    desk.side.ensure_cache_available(request, 0)
    assert {"r"} == desk.side.take_unavailable_requests()
    assert desk.side.ensure_cache_available(request, 0) is False
    assert set() == desk.side.take_unavailable_requests()


def test_watching_a_promise_looks_nothing_up_again(desk: Desk) -> None:
    """A request without media that waits for memory asks the cache once, not in every step."""
    desk.lookup.stored = {A}
    inputs = (Input(id=A, offset=0, fields=GRID_ONLY), Input(id=B, offset=9))
    request = make_request("r", *inputs)
    assert all(desk.side.ensure_cache_available(request, 0) for _ in range(5))
    assert 1 == len(desk.lookup.ensured)


def test_a_finished_request_asks_no_more(desk: Desk) -> None:
    """What was promised to a request ends with it."""
    desk.lookup.stored = {A}
    request = make_request("r", Input(id=A, offset=0))
    desk.side.ensure_cache_available(request, 0)
    desk.side.request_finished(request)
    assert desk.side.has_cache_item(A) is False


def test_a_streaming_request_is_counted_once(desk: Desk) -> None:
    """An input that is bypassed is not counted again when the request gets another one."""
    request = make_request("r", Input(id="own", offset=0))
    desk.side.ensure_cache_available(request, 0)
    request.mm_features.append(Input(id="other", offset=9).feature())
    desk.side.ensure_cache_available(request, 0)
    assert 2 == desk.telemetry.counters["bypassed:client_id"]


def test_a_large_input_is_never_taken_for_a_grid(desk: Desk) -> None:
    """Whatever its fields are called, and without asking the slow declaration of fields."""
    fields = {"image_grid_thw": torch.zeros(100)}
    request = make_request("r", Input(id=A, offset=0, fields=fields))
    assert desk.side.ensure_cache_available(request, 0) is True


def test_replaced_weights_take_no_promise_back_that_was_given(desk: Desk) -> None:
    """Between two questions of one step it is too late: what was promised is loaded."""
    desk.lookup.stored = {A, B}
    request = make_request("r", Input(id=A, offset=0), Input(id=B, offset=9))
    desk.side.ensure_cache_available(request, 0)
    assert desk.side.has_cache_item(A)
    desk.intact = False
    desk.side.has_cache_item(B)
    desk.side.update_state_after_alloc(request, 0)
    assert [A] == [load.mm_hash for load in desk.end_step().loads]
