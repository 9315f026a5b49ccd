"""The promise ledger: no copy outlives its requests and their loads, however they end."""

from eccache.domain.promise import PromiseState
from eccache.ports.lookup import Item, StepPlan
from tests.unit.promises.ledgers import A, B, Ledger


def test_an_abort_while_a_look_up_is_pending_leaves_nothing() -> None:
    """Its thread closes the copy when it is done."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    (job,) = ledger.lookups.jobs
    ledger.port.finished("r")
    assert job.abandoned
    copy = ledger.lookups.copy(rows=4)
    assert copy is not None
    ledger.lookups.answer(job, copy)
    ledger.expect_nothing_left()


def test_an_abort_when_the_copy_was_made_but_not_taken_in_leaves_nothing() -> None:
    """An idle engine makes no further call."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a")
    ledger.port.finished("r")
    ledger.expect_nothing_left()


def test_an_abort_of_a_ready_request_closes_its_copies() -> None:
    """No copy outlives its request."""
    ledger = Ledger()
    ledger.promise("r", A, B)
    ledger.port.finished("r")
    assert not ledger.port.is_promised("a")
    ledger.expect_nothing_left()


def test_an_abort_in_the_step_of_the_load_keeps_the_copy_for_the_workers() -> None:
    """The plan still goes out; the copy stays until it is acknowledged."""
    ledger = Ledger()
    ledger.promise("r", A)
    ledger.port.allocated("r", A, storable=False)
    ledger.port.finished("r")
    (load,) = ledger.port.take_step().loads
    assert 1 == len(ledger.lookups.open_copies)
    ledger.ack(load.promise_id)
    ledger.expect_nothing_left()


def test_an_abort_leaves_what_another_request_waits_for() -> None:
    """The look-up goes on for the other one."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [A])
    ledger.port.finished("r")
    ledger.lookups.find("a")
    assert ledger.port.ensure("s", [A])
    assert ledger.port.is_promised("a")


def test_finishing_what_is_not_known_does_nothing() -> None:
    """Every request ends, also one without an input."""
    ledger = Ledger()
    ledger.port.finished("never seen")
    ledger.expect_nothing_left()


def test_a_promise_that_nobody_takes_is_given_up_by_age() -> None:
    """The oldest first, and not before its time; a new round looks it up anew."""
    ledger = Ledger()
    ledger.promise("r", A)
    ledger.clock.advance(1)
    ledger.promise("s", B)
    ledger.clock.advance(58.9)
    ledger.port.take_step()
    assert ledger.port.is_promised("a")
    ledger.clock.advance(0.1)
    ledger.port.take_step()
    assert not ledger.port.is_promised("a")
    assert ledger.port.is_promised("b")
    assert 1 == ledger.count("expired")
    assert not ledger.port.ensure("r", [A])


def test_a_request_whose_promise_was_given_up_ends_like_any_other() -> None:
    """It holds nothing any more."""
    ledger = Ledger()
    ledger.promise("r", A)
    ledger.clock.advance(60)
    ledger.port.take_step()
    ledger.port.finished("r")
    ledger.expect_nothing_left()


def test_a_promise_holds_from_true_until_the_step_is_planned() -> None:
    """Age takes it back in no call between the question and the load."""
    ledger = Ledger()
    ledger.promise("r", A)
    assert ledger.port.is_promised("a")
    ledger.clock.advance(60)
    assert ledger.port.is_promised("a")
    ledger.port.allocated("r", A, storable=False)
    assert 1 == len(ledger.port.take_step().loads)


def test_a_load_that_is_never_acknowledged_ends_by_age() -> None:
    """A lost report costs memory for a while, and an operator is told."""
    ledger = Ledger(ranks=2)
    ledger.promise("r", A)
    ledger.ack(ledger.load("r", A))
    ledger.clock.advance(599)
    ledger.port.take_step()
    assert 1 == len(ledger.lookups.open_copies)
    ledger.clock.advance(1)
    ledger.port.take_step()
    assert 1 == ledger.count("unacknowledged")
    assert 1 == len(ledger.telemetry.named("ledger.load.unacknowledged"))
    ledger.expect_nothing_left()


def test_an_input_that_left_the_accelerator_while_loading_is_promised_from_its_copy() -> None:
    """The same bytes serve again, without a look-up, until both loads are acknowledged."""
    ledger = Ledger()
    ledger.promise("r", A)
    first = ledger.load("r", A)
    assert not ledger.port.is_promised("a")
    assert ledger.port.ensure("r", [A])
    second = ledger.load("r", A)
    assert first != second
    assert 1 == ledger.lookups.started
    ledger.ack(first)
    assert 1 == len(ledger.lookups.open_copies)
    ledger.ack(second)
    ledger.expect_nothing_left()


def test_a_copy_promised_again_stays_after_its_first_load_is_acknowledged() -> None:
    """The promise has a use of its own."""
    ledger = Ledger()
    ledger.promise("r", A)
    first = ledger.load("r", A)
    assert ledger.port.ensure("s", [A])
    ledger.ack(first)
    assert ledger.port.is_promised("a")
    ledger.port.finished("s")
    ledger.expect_nothing_left()


def test_a_copy_being_loaded_is_not_promised_for_other_rows() -> None:
    """A request that needs other rows gets an encoder run."""
    ledger = Ledger()
    ledger.promise("r", A)
    first = ledger.load("r", A)
    assert ledger.port.ensure("s", [Item("a", 9)])
    assert not ledger.port.is_promised("a")
    ledger.ack(first)
    ledger.expect_nothing_left()


def test_preemption_before_the_load_keeps_the_copy() -> None:
    """The request comes back, finds its promise as it was, and loads it."""
    ledger = Ledger()
    ledger.promise("r", A)
    assert ledger.port.is_promised("a")
    ledger.port.take_step()  # the framework found no room after all
    assert ledger.port.ensure("r", [A])
    ledger.ack(ledger.load("r", A))
    assert 1 == ledger.lookups.started
    ledger.expect_nothing_left()


def test_two_holders_of_a_copy_that_was_loaded_end_without_it() -> None:
    """The other one found it on the accelerator."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [A])
    ledger.lookups.find("a")
    assert ledger.port.ensure("r", [A])
    assert ledger.port.ensure("s", [A])
    ledger.ack(ledger.load("r", A))
    ledger.expect_nothing_left()
    ledger.port.finished("s")
    ledger.port.finished("r")


def test_closing_closes_every_copy_and_abandons_every_look_up() -> None:
    """Ready, loading, pending: nothing stays, and nothing is begun any more."""
    ledger = Ledger()
    ledger.promise("r", A)
    ledger.promise("s", B)
    ledger.load("s", B)
    assert not ledger.port.ensure("t", [Item("c", 4)])
    (job,) = ledger.lookups.jobs
    ledger.port.close()
    ledger.port.close()
    assert job.abandoned
    assert ledger.lookups.closed
    assert ledger.port.ensure("u", [A])
    assert not ledger.port.is_promised("a")
    assert StepPlan() == ledger.port.take_step()
    ledger.port.finished("r")
    ledger.expect_nothing_left()


def test_a_promise_is_in_one_state_after_the_other() -> None:
    """As the domain draws them."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, B])
    first, second = (ledger.port._promises[name] for name in "ab")  # noqa: SLF001 - its subject
    states = [first.state]
    ledger.lookups.find("a")
    ledger.port.take_step()
    states.append(first.state)
    ledger.port.allocated("r", A, storable=False)
    states.append(first.state)
    ledger.port.finished("r")
    expected = [PromiseState.PENDING, PromiseState.READY, PromiseState.LOADING]
    assert [*expected, PromiseState.ABANDONED] == [*states, second.state]
