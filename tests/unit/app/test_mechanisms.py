"""Each mechanism between a caller and a store, taken away, makes the test fail that is there for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eccache.app.bounded_calls import BoundedCalls
from eccache.app.writer import BackgroundWriter
from eccache.domain import entry_format
from tests.unit.app import test_bounded_calls, test_engine, test_writer

Patch = pytest.MonkeyPatch
SHORT = 0.2
FOR_EVER = 30.0


def without_deadline(patch: Patch) -> None:
    """Wait for every call until it returns."""
    call = BoundedCalls.call

    def wait(self: BoundedCalls, function: Callable[[], Any], _: float, **options: Any) -> Any:  # noqa: ANN401
        return call(self, function, FOR_EVER, **options)

    patch.setattr(BoundedCalls, "call", wait)


def without_deadline_of_close(patch: Patch) -> None:
    """Wait for every job until it is done."""
    progressed = BackgroundWriter._progressed  # noqa: SLF001 - tests look behind
    patch.setattr(BackgroundWriter, "_progressed", lambda self, _: progressed(self, FOR_EVER))


def without_bound_of_lost_threads(patch: Patch) -> None:
    """Send one thread after the other into a store that hangs."""
    make = BoundedCalls.__init__
    patch.setattr(BoundedCalls, "__init__", lambda self, name, **_: make(self, name, 1 << 30))


def without_checksum(patch: Patch) -> None:
    """Take every digest for the right one."""
    patch.setattr(entry_format.FrameHasher, "matches", lambda _: True)


def without_identity(patch: Patch) -> None:
    """Take every input for the right one."""
    patch.setattr(entry_format, "check_identity", lambda *_: None)


@contextmanager
def calls() -> Iterator[BoundedCalls]:
    """Bounded calls of which two may hang."""
    calls = BoundedCalls("test-calls", max_lost=2)
    yield calls
    calls.close()


def with_calls(test: Callable[[BoundedCalls], None]) -> Callable[[], None]:
    """Return a test that makes its bounded calls itself."""

    def run() -> None:
        with calls() as bounded:
            test(bounded)

    return run


MECHANISMS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (without_deadline, with_calls(test_bounded_calls.test_a_hung_call_is_a_timeout)),
    (without_deadline, test_engine.test_a_get_that_hangs_is_a_timeout_and_a_miss),
    (without_deadline_of_close, test_writer.test_close_gives_up_on_a_job_that_hangs),
    (
        without_bound_of_lost_threads,
        with_calls(test_bounded_calls.test_too_many_hung_calls_fail_at_once_until_one_returns),
    ),
    (
        without_checksum,
        test_engine.test_a_flipped_bit_is_a_corrupt_miss_and_the_entry_is_out_of_sight,
    ),
    (without_identity, test_engine.test_inputs_that_collide_in_64_bits_are_never_each_others),
]


@pytest.mark.parametrize(
    ("take_away", "test"),
    MECHANISMS,
    ids=[f"{take_away.__name__} {number}" for number, (take_away, _) in enumerate(MECHANISMS)],
)
def test_without_it_a_test_fails(
    take_away: Callable[[Patch], None], test: Callable[[], None], monkeypatch: Patch
) -> None:
    """The test passes with the mechanism and fails without it."""
    test()
    for module in (test_bounded_calls, test_engine, test_writer):
        monkeypatch.setattr(module, "LONG", SHORT)  # what hangs does not hang for long then
    take_away(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test()
