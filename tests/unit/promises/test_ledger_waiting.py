"""The promise ledger: who waits, for how long, and for what."""

from typing import Any

import attrs
import pytest

from eccache.app.promises.lookup_job import NoRoom
from eccache.domain.outcomes import LookupOutcome
from eccache.ports.lookup import Item
from tests.unit.promises.ledgers import A_EXPECTED, LIMITS, A, B, Ledger


def test_nothing_waits_past_its_deadline() -> None:
    """A look-up that hangs costs the request its time limit, then an encoder run."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(4.999)
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(0.001)
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.is_promised("a")
    assert {"deferred": 1, "deadlines": 1, "timeouts": 1} == dict(ledger.telemetry.counters)


def test_a_copy_that_comes_after_the_deadline_is_closed() -> None:
    """Its look-up was abandoned with the last request that waited."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    (job,) = ledger.lookups.jobs
    ledger.clock.advance(5)
    assert ledger.port.ensure("r", [A])
    copy = ledger.lookups.copy(rows=4)
    assert copy is not None
    ledger.lookups.answer(job, copy)
    ledger.expect_nothing_left()


def test_a_look_up_is_told_the_deadline_of_the_request_that_asked_first() -> None:
    """A store that can stop waiting knows when."""
    ledger = Ledger()
    ledger.port.ensure("r", [A])
    (job,) = ledger.lookups.jobs
    assert (ledger.clock.monotonic(), ledger.clock.monotonic() + 5) == (job.started, job.deadline)


def test_a_request_that_joined_later_has_its_own_deadline() -> None:
    """The first one's end does not take the look-up from the second."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(3)
    assert not ledger.port.ensure("s", [A])
    ledger.clock.advance(2)
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [A])
    ledger.lookups.find("a")
    assert ledger.port.ensure("s", [A])
    assert ledger.port.is_promised("a")


def test_what_is_ready_stays_promised_when_another_input_times_out() -> None:
    """One hung read of ten costs one encoder run."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, B])
    ledger.lookups.find("a")
    ledger.clock.advance(5)
    assert ledger.port.ensure("r", [A, B])
    assert ledger.port.is_promised("a")
    assert not ledger.port.is_promised("b")
    assert 1 == ledger.count("timeouts")


def test_time_passes_for_a_request_that_is_not_asked_for() -> None:
    """A scheduler that does not get to it must not block others' turns with it."""
    ledger = Ledger(max_deferred_requests=1)
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(5)
    ledger.port.take_step()
    assert not ledger.port.ensure("s", [B])
    assert ledger.port.ensure("r", [A])


def test_an_input_that_comes_up_after_the_deadline_is_not_waited_for() -> None:
    """A request waits one time limit a round, however its needs change."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(5)
    ledger.port.take_step()
    assert ledger.port.ensure("r", [A, B])
    assert 2 == ledger.count("timeouts")


def test_at_most_so_many_requests_are_deferred() -> None:
    """One more is answered at once, and what it needs is computed; its misses are not remembered."""
    ledger = Ledger(max_deferred_requests=2)
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [A])
    assert ledger.port.ensure("t", [A, B])
    assert 2 == ledger.count("bypassed:deferral_limit")
    assert 1 == ledger.lookups.started
    ledger.port.finished("r")
    assert not ledger.port.ensure("t", [A, B])


def test_what_needs_no_waiting_is_had_above_the_limit_too() -> None:
    """A ready copy is shared, a miss is a miss."""
    ledger = Ledger(max_deferred_requests=1)
    ledger.promise("r", A)
    assert not ledger.port.ensure("s", [B])
    ledger.absent.add("c")
    assert ledger.port.ensure("t", [A, Item("c", 4)])
    ledger.port.finished("r")
    assert ledger.port.is_promised("a")
    assert 0 == ledger.count("bypassed:deferral_limit")


def test_an_answered_request_makes_room_for_another() -> None:
    """The limit is of requests that wait now."""
    ledger = Ledger(max_deferred_requests=1)
    ledger.promise("r", A)
    assert not ledger.port.ensure("s", [B])


def test_what_is_no_longer_needed_is_not_waited_for() -> None:
    """Another request brought it to the accelerator meanwhile: its look-up ends."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, B])
    ledger.lookups.find("a")
    (pending,) = ledger.lookups.jobs
    assert ledger.port.ensure("r", [A])
    assert pending.abandoned
    assert ledger.port.is_promised("a")


def test_look_ups_that_are_refused_cost_encoder_runs() -> None:
    """All threads hang: nobody waits for nothing."""
    ledger = Ledger()
    ledger.lookups.refuses = True
    assert ledger.port.ensure("r", [A, B])
    assert 2 == ledger.count("bypassed:lookups_hang")
    ledger.lookups.refuses = False
    assert not ledger.port.ensure("r", [A])


def test_an_input_on_its_way_is_waited_for_and_found() -> None:
    """The consumer asked before the producer's writer was done."""
    ledger = Ledger()
    ledger.absent.add("a")
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert 0 == ledger.lookups.started
    ledger.absent.clear()
    ledger.clock.advance(0.5)
    assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.lookups.find("a")
    assert ledger.port.ensure("r", [A_EXPECTED])
    assert ledger.port.is_promised("a")


def test_an_input_on_its_way_is_polled_at_intervals() -> None:
    """Not in each of a thousand steps a second."""
    ledger = Ledger()
    ledger.absent.add("a")
    for _ in range(10):
        assert not ledger.port.ensure("r", [A_EXPECTED])
        ledger.clock.advance(0.125)
    assert 3 == ledger.probes


def test_an_input_on_its_way_that_only_a_look_up_can_find_is_looked_up_again() -> None:
    """A miss of a remote tier is no miss before the deadline."""
    ledger = Ledger()
    ledger.unknown.add("a")
    assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.lookups.answer(ledger.lookups.job("a"), LookupOutcome.MISS)
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert [] == ledger.lookups.jobs
    ledger.clock.advance(0.5)
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert 1 == len(ledger.lookups.jobs)


def test_an_input_that_never_came_is_a_miss() -> None:
    """Not a timeout: the store answered, and the answer was no."""
    ledger = Ledger()
    ledger.absent.add("a")
    assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.clock.advance(5)
    assert ledger.port.ensure("r", [A_EXPECTED])
    assert {"deferred": 1, "deadlines": 1, "misses": 1} == dict(ledger.telemetry.counters)


def test_only_those_wait_for_an_input_on_its_way_that_were_told_of_it() -> None:
    """One and the same look-up is a miss for one request, and not yet for another."""
    ledger = Ledger()
    ledger.unknown.add("a")
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert not ledger.port.ensure("s", [A])
    ledger.lookups.answer(ledger.lookups.job("a"), LookupOutcome.MISS)
    assert ledger.port.ensure("s", [A])
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert 1 == ledger.count("misses")


def test_an_input_larger_than_the_bound_is_not_waited_for() -> None:
    """It will never have room."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.no_room("a", 100_001)
    assert ledger.port.ensure("r", [A])
    assert {"deferred": 1, "bypassed:promise_capacity": 1} == dict(ledger.telemetry.counters)


def test_room_that_others_hold_is_waited_for() -> None:
    """As soon as a load is acknowledged, the next one is looked up."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a", nbytes=60_000)
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [B])
    ledger.no_room("b", 60_000)
    assert not ledger.port.ensure("s", [B])
    assert [] == ledger.lookups.jobs
    ledger.ack(ledger.load("r", A))
    assert not ledger.port.ensure("s", [B])
    ledger.lookups.find("b", nbytes=60_000)
    assert ledger.port.ensure("s", [B])
    assert ledger.port.is_promised("b")


def test_room_that_never_came_is_told_apart_from_a_slow_store() -> None:
    """An operator sees that the bound is too low, not that the disk is slow."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a", nbytes=60_000)
    assert not ledger.port.ensure("s", [B])
    ledger.no_room("b", 60_000)
    ledger.clock.advance(5)
    assert ledger.port.ensure("s", [B])
    assert 1 == ledger.count("bypassed:promise_capacity")
    assert 0 == ledger.count("timeouts")


def test_an_input_on_its_way_that_had_no_room_once_is_polled_again() -> None:
    """What it waits for is told anew by each look-up."""
    ledger = Ledger()
    ledger.unknown.add("a")
    assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.no_room("a", 60_000)
    assert not ledger.port.ensure("r", [A_EXPECTED])
    assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.lookups.answer(ledger.lookups.job("a"), LookupOutcome.MISS)
    for _ in range(3):
        assert not ledger.port.ensure("r", [A_EXPECTED])
    assert 2 == ledger.lookups.started
    ledger.clock.advance(5)
    assert ledger.port.ensure("r", [A_EXPECTED])
    assert 1 == ledger.count("misses")


def test_room_that_a_request_holds_itself_is_not_waited_for() -> None:
    """It would wait for its own end."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, B])
    ledger.lookups.find("a", nbytes=60_000)
    ledger.no_room("b", 60_000)
    assert ledger.port.ensure("r", [A, B])
    assert ledger.port.is_promised("a")
    assert 1 == ledger.count("bypassed:promise_capacity")


def test_room_that_a_request_comes_to_hold_itself_ends_the_waiting() -> None:
    """First others held it, then its own other copy: now waiting is pointless."""
    ledger = Ledger()
    c = Item("c", 4)
    assert not ledger.port.ensure("q", [c])
    ledger.lookups.find("c", nbytes=60_000)
    assert ledger.port.ensure("q", [c])
    assert not ledger.port.ensure("r", [A, B])
    ledger.no_room("b", 60_000)
    assert not ledger.port.ensure("r", [A, B])
    ledger.port.finished("q")
    ledger.lookups.find("a", nbytes=60_000)
    assert ledger.port.ensure("r", [A, B])
    assert ledger.port.is_promised("a")
    assert 1 == ledger.count("bypassed:promise_capacity")


def test_the_number_of_copies_is_bounded_like_their_bytes() -> None:
    """A request of more inputs than there may be copies gets as many as there may be."""
    ledger = Ledger(max_promised_copies=2)
    items = [Item(name, 4) for name in "abc"]
    assert not ledger.port.ensure("r", items)
    ledger.lookups.find("a")
    ledger.lookups.find("b")
    assert ledger.lookups.copy(rows=4) is None
    ledger.no_room("c", 4096)
    assert ledger.port.ensure("r", items)
    assert [True, True, False] == [ledger.port.is_promised(name) for name in "abc"]


@pytest.mark.parametrize(
    "limits",
    [
        {"lookup_timeout_seconds": 0.0},
        {"max_deferred_requests": -1},
        {"max_promised_nbytes": -1},
        {"max_promised_copies": -1},
        {"promise_ttl_seconds": 0.0},
        {"load_ack_timeout_seconds": -1.0},
        {"expected_poll_seconds": 0.0},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limits: dict[str, Any]) -> None:
    """At start, and by its name."""
    with pytest.raises(ValueError, match=next(iter(limits))):
        attrs.evolve(LIMITS, **limits)


# --- inputs that nothing but their entry can supply -----------------------------------------------------

A_REQUIRED = Item("a", 4, required=True)


def test_a_request_that_needs_its_entry_waits_for_its_turn() -> None:
    """The bound lets others go on: they have an encoder. Until then nothing is looked up for it."""
    ledger = Ledger(max_deferred_requests=1)
    assert not ledger.port.ensure("first", [B])
    assert ledger.port.ensure("second", [A])
    for _ in range(3):
        assert not ledger.port.ensure("third", [A_REQUIRED])
    assert (1, 1) == (ledger.lookups.started, ledger.count("bypassed:deferral_limit"))
    ledger.port.finished("first")
    ledger.promise("third", A_REQUIRED)


def test_what_is_at_hand_needs_no_turn() -> None:
    """Another request's copy serves at once."""
    ledger = Ledger(max_deferred_requests=1)
    ledger.promise("first", A)
    assert not ledger.port.ensure("second", [B])
    assert ledger.port.ensure("third", [A_REQUIRED])


def test_where_nobody_may_wait_nobody_waits_for_a_turn() -> None:
    """An operator who allows no deferral gets none."""
    ledger = Ledger(max_deferred_requests=0)
    assert ledger.port.ensure("r", [A_REQUIRED])
    assert ledger.port.may_be_found("r", "a")


@pytest.mark.parametrize("required", [True, False])
def test_who_can_not_go_on_with_a_part_lets_others_have_its_room(required: bool) -> None:  # noqa: FBT001
    """Two requests hold a copy each, and wait for the other's room: one of them gives way in time."""
    ledger = Ledger(max_promised_copies=2)
    first = [Item(name, 4, required=required) for name in ("a", "b")]
    second = [Item(name, 4, required=required) for name in ("c", "d")]
    assert not ledger.port.ensure("first", first)
    ledger.clock.advance(1.0)
    assert not ledger.port.ensure("second", second)
    for name in ("a", "c"):
        ledger.lookups.find(name, rows=4)
    for job in list(ledger.lookups.jobs):
        ledger.lookups.answer(job, NoRoom(1))
    ledger.clock.advance(4.0)
    assert not ledger.port.ensure("second", second)
    assert (not required) is ledger.port.is_promised("a")
    assert ledger.port.is_promised("c")
    assert ledger.port.may_be_found("first", "a")
    if required:
        assert not ledger.port.ensure("second", second)
        ledger.lookups.find("d", rows=4)
        assert ledger.port.ensure("second", second)


def test_what_many_inputs_wait_for_is_counted_once() -> None:
    """A request with a thousand inputs, and no room for any: a step looks at each of them once."""
    ledger = Ledger(max_promised_copies=1 << 20)
    items = [Item(str(number), 4) for number in range(1_000)]
    asked = 0

    class Counting(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            nonlocal asked
            asked += 1
            return super().__contains__(key)

    assert not ledger.port.ensure("r", items)
    for job in list(ledger.lookups.jobs):
        ledger.lookups.answer(job, NoRoom(1))
    assert ledger.budget.reserve(LIMITS.max_promised_nbytes)
    ledger.port._ready = Counting()  # noqa: SLF001 - the only trace that quadratic work leaves
    assert not ledger.port.ensure("r", items)
    assert asked <= 3 * len(items)


def test_what_there_was_no_time_for_may_be_found() -> None:
    """In a round of its own, with a whole deadline."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.clock.advance(5.0)
    assert ledger.port.ensure("r", [A])
    assert ledger.port.may_be_found("r", "a")
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a", rows=4)
    assert ledger.port.ensure("r", [A])
    assert ledger.port.is_promised("a")


@pytest.mark.parametrize(
    "outcome", [LookupOutcome.MISS, LookupOutcome.CORRUPT, LookupOutcome.ERROR]
)
def test_what_was_looked_for_in_vain_is_not_to_be_had(outcome: LookupOutcome) -> None:
    """Until another round says something else."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.answer(ledger.lookups.jobs[0], outcome)
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.may_be_found("r", "a")
    assert not ledger.port.ensure("r", [A])
    assert ledger.port.may_be_found("r", "a")


@pytest.mark.parametrize("polled", [True, False])
def test_what_is_expected_and_never_comes_is_absent_if_somebody_looked(polled: bool) -> None:  # noqa: FBT001
    """A request that nobody asked about for a while may have got its entry meanwhile."""
    ledger = Ledger()
    ledger.absent = {"a"}
    assert not ledger.port.ensure("r", [A_EXPECTED])
    for _ in range(2 if polled else 0):  # in steps that take long
        ledger.clock.advance(1.5)
        assert not ledger.port.ensure("r", [A_EXPECTED])
    ledger.clock.advance(2.0 if polled else 5.0)
    assert ledger.port.ensure("r", [A_EXPECTED])
    assert (not polled) is ledger.port.may_be_found("r", "a")
    assert 1 == ledger.count("misses")


def test_nobody_finds_anything_after_the_end() -> None:
    """Neither a request that is unknown, nor a ledger that is closed."""
    ledger = Ledger()
    assert not ledger.port.may_be_found("stranger", "a")
    ledger.port.ensure("r", [A])
    ledger.port.close()
    assert not ledger.port.may_be_found("r", "a")
