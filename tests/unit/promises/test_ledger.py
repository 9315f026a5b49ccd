"""The promise ledger: what is promised, to whom, and what becomes of it."""

import attrs
import pytest

from eccache.domain.outcomes import LookupOutcome
from eccache.ports.lookup import Item, PermittedSave, StepPlan
from tests.unit.promises.ledgers import A, B, Ledger


def test_a_hit_is_deferred_promised_loaded_and_closed() -> None:
    """The whole life of a promise."""
    ledger = Ledger(ranks=2)
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.is_promised("a")
    copy = ledger.lookups.find("a")
    assert ledger.port.ensure("r", [A])
    assert ledger.port.is_promised("a")
    ledger.port.allocated("r", A, storable=True)
    assert not ledger.port.is_promised("a")
    plan = ledger.port.take_step()
    assert () == plan.saves
    (load,) = plan.loads
    assert ("a", 1, copy.pid, copy.fd, copy.nbytes) == attrs.astuple(load)
    assert StepPlan() == ledger.port.take_step()
    ledger.ack(1)
    assert [copy] == ledger.lookups.open_copies
    ledger.ack(1)
    ledger.expect_nothing_left()
    assert {"deferred": 1, "promised": 1, "hits": 1} == dict(ledger.telemetry.counters)


def test_what_was_ordered_begins_with_the_end_of_the_step() -> None:
    """Also where the step itself has nothing to do."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, B])
    assert (2, 0) == (ledger.lookups.started, ledger.lookups.begun)
    assert StepPlan() == ledger.port.take_step()
    assert 1 == ledger.lookups.begun


def test_a_miss_is_never_deferred() -> None:
    """Absent from the store: the request goes on in the same call, and is not looked up."""
    ledger = Ledger()
    ledger.absent.add("a")
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.is_promised("a")
    assert 0 == ledger.lookups.started
    assert {"misses": 1} == dict(ledger.telemetry.counters)


def test_what_can_not_be_told_at_once_is_looked_up() -> None:
    """A remote tier is never probed on the scheduler's thread."""
    ledger = Ledger()
    ledger.unknown.add("a")
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.answer(ledger.lookups.job("a"), LookupOutcome.MISS)
    assert ledger.port.ensure("r", [A])
    assert 1 == ledger.count("misses")


@pytest.mark.parametrize(
    "outcome",
    [LookupOutcome.MISS, LookupOutcome.CORRUPT, LookupOutcome.ERROR, LookupOutcome.TIMEOUT],
)
def test_whatever_goes_wrong_is_a_miss_with_a_counter_of_its_own(outcome: LookupOutcome) -> None:
    """Errors are not misses, damage is not an error, slowness is neither."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.answer(ledger.lookups.job("a"), outcome)
    assert ledger.port.ensure("r", [A])
    assert not ledger.port.is_promised("a")
    assert {"deferred": 1, outcome.value: 1} == dict(ledger.telemetry.counters)


@pytest.mark.parametrize("rows", [3, 5])
def test_another_number_of_rows_is_a_miss(rows: int) -> None:
    """An id that now means a longer clip gets its encoder run, and the copy goes."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a", rows=rows)
    ledger.port.take_step()
    assert not ledger.port.is_promised("a")
    assert ledger.port.ensure("r", [A])
    assert 1 == ledger.count("misses")
    assert 0 == ledger.count("promised")
    ledger.expect_nothing_left()


def test_a_tensor_that_is_no_encoder_output_is_a_miss() -> None:
    """Rows alone are not enough."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    copy = ledger.lookups.copy(rows=4, rank=1)
    assert copy is not None
    ledger.lookups.answer(ledger.lookups.job("a"), copy)
    assert ledger.port.ensure("r", [A])
    ledger.expect_nothing_left()


def test_a_miss_is_remembered_within_a_round() -> None:
    """While another item is awaited, the missed one is not looked up again."""
    ledger = Ledger()
    ledger.absent.add("a")
    for _ in range(3):
        assert not ledger.port.ensure("r", [A, B])
    assert 2 == ledger.probes
    assert 1 == ledger.count("misses")


def test_a_new_round_looks_again() -> None:
    """Preempted, or its item left the accelerator: what was missed may be there by now."""
    ledger = Ledger()
    ledger.absent.add("a")
    assert ledger.port.ensure("r", [A])
    ledger.absent.clear()
    assert not ledger.port.ensure("r", [A])
    ledger.lookups.find("a")
    assert ledger.port.ensure("r", [A])
    assert ledger.port.is_promised("a")


def test_nothing_needed_is_answered_at_once() -> None:
    """No items, nothing to wait for."""
    assert Ledger().port.ensure("r", [])


def test_requests_that_need_the_same_input_share_one_look_up_and_one_copy() -> None:
    """The second one joins while it is pending, the third while it is ready."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [A])
    ledger.lookups.find("a")
    assert ledger.port.ensure("t", [A])
    assert ledger.port.ensure("r", [A])
    assert ledger.port.ensure("s", [A])
    assert 1 == ledger.lookups.started
    for request_id in ("r", "s"):
        ledger.port.finished(request_id)
        assert ledger.port.is_promised("a")
    ledger.port.finished("t")
    ledger.expect_nothing_left()


def test_the_same_input_twice_in_one_request_is_one_promise() -> None:
    """One look-up, one copy, one load."""
    ledger = Ledger()
    assert not ledger.port.ensure("r", [A, A])
    ledger.lookups.find("a")
    assert ledger.port.ensure("r", [A, A])
    ledger.ack(ledger.load("r", A))
    ledger.expect_nothing_left()


def test_requests_that_disagree_on_rows_are_judged_alone() -> None:
    """The one whose rows are there gets them, pending or ready; the others get an encoder run."""
    ledger = Ledger()
    longer = Item("a", 9)
    assert not ledger.port.ensure("r", [A])
    assert not ledger.port.ensure("s", [longer])
    ledger.lookups.find("a", rows=4)
    assert ledger.port.ensure("s", [longer])
    assert ledger.port.ensure("r", [A])
    assert ledger.port.ensure("t", [longer])
    assert 2 == ledger.count("misses")
    assert 1 == ledger.count("promised")
    ledger.port.finished("r")
    ledger.expect_nothing_left()


def test_a_promise_may_be_taken_by_a_request_that_never_asked_for_it() -> None:
    """The framework names the input alone; a True holds for whoever takes it."""
    ledger = Ledger()
    ledger.promise("r", A)
    promise_id = ledger.load("stranger", A)
    ledger.port.finished("r")
    assert 1 == len(ledger.lookups.open_copies)
    ledger.ack(promise_id)
    ledger.expect_nothing_left()


def test_a_promise_taken_for_other_rows_is_kept_and_counted() -> None:
    """True was said; there is no way back. It must not happen, so an operator is told."""
    ledger = Ledger()
    ledger.promise("r", A)
    ledger.port.allocated("r", Item("a", 9), storable=False)
    assert 1 == len(ledger.port.take_step().loads)
    assert 1 == ledger.count("errors")
    (event,) = ledger.telemetry.named("ledger.rows.differ")
    assert (4, 9) == (event.fields["rows"], event.fields["needed"])


def test_what_is_encoded_may_be_saved_if_it_is_storable() -> None:
    """An allow-list of this step, each input once."""
    ledger = Ledger()
    ledger.port.allocated("r", A, storable=True)
    ledger.port.allocated("r", B, storable=False)
    ledger.port.allocated("s", A, storable=True)
    assert StepPlan(saves=(PermittedSave("a"),)) == ledger.port.take_step()
    assert StepPlan() == ledger.port.take_step()
