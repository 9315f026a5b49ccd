"""A budget that bounds copies, and copies that are charged until they are closed."""

import threading

import pytest

from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.parts import TrackedCopy, ample_budget


def test_bytes_are_never_promised_above_the_bound() -> None:
    """The last byte can be had, and not one more."""
    budget = CopyBudget(100, 10, RecordingTelemetry())
    assert budget.reserve(60)
    assert not budget.has_room(41)
    assert not budget.reserve(41)
    assert budget.has_room(40)
    assert budget.reserve(40)
    assert 100 == budget.nbytes


def test_copies_are_never_more_than_the_bound() -> None:
    """Each costs a descriptor, however small it is."""
    budget = CopyBudget(100, 2, RecordingTelemetry())
    assert budget.reserve(1)
    assert budget.reserve(1)
    assert not budget.has_room(1)
    assert not budget.reserve(1)
    assert 2 == budget.copies


def test_what_is_released_can_be_had_again() -> None:
    """Room comes back, of bytes and of copies."""
    budget = CopyBudget(100, 1, RecordingTelemetry())
    assert budget.reserve(100)
    budget.release(100)
    assert budget.reserve(100)


@pytest.mark.parametrize(
    ("sizes", "expected"), [((100,), True), ((60, 40), True), ((60, 41), False), ((1, 1, 1), False)]
)
def test_what_could_never_be_held_together_is_known(sizes: tuple[int, ...], expected: bool) -> None:  # noqa: FBT001
    """Waiting for room is worth it only where it could help, whatever is charged now."""
    budget = CopyBudget(100, 2, RecordingTelemetry())
    budget.reserve(99)
    assert expected is budget.could_hold(sum(sizes), len(sizes))


def test_the_bytes_promised_are_told() -> None:
    """An operator sees the memory that promises hold."""
    telemetry = RecordingTelemetry()
    budget = CopyBudget(100, 2, telemetry)
    budget.reserve(60)
    budget.reserve(30)
    budget.reserve(30)
    budget.release(60)
    assert [60, 90, 30] == telemetry.observations["promised_bytes"]


def test_threads_that_reserve_at_once_stay_within_the_bound() -> None:
    """Look-ups charge from their threads."""
    budget = CopyBudget(50, 1000, RecordingTelemetry())
    start = threading.Barrier(8)
    granted: list[bool] = []

    def reserve() -> None:
        start.wait()
        granted.extend(budget.reserve(1) for _ in range(10))

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 50 == sum(granted)


def test_a_copy_is_charged_until_it_is_closed_and_once() -> None:
    """Closing gives memory and budget back; closing again gives nothing."""
    budget = ample_budget()
    budget.reserve(4096)
    tracked = TrackedCopy(4096, fd=7, pid=9)
    copy = PromisedCopy(tracked, budget, TensorSpec("bfloat16", (3, 5)))
    assert (4096, 7, 9, 3) == (copy.nbytes, copy.fd, copy.pid, copy.rows)
    assert not tracked.closed
    copy.close()
    assert tracked.closed
    copy.close()
    assert (0, 0) == (budget.nbytes, budget.copies)


@pytest.mark.parametrize("shape", [(), (4,), (4, 1, 1)])
def test_what_is_no_encoder_output_has_no_rows(shape: tuple[int, ...]) -> None:
    """An entry of the library's that is no `[rows, width]` equals no number of rows."""
    copy = PromisedCopy(TrackedCopy(4096), ample_budget(), TensorSpec("bfloat16", shape))
    assert copy.rows is None
