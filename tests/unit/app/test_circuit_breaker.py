"""A failing tier is asked less and less, and again as soon as it works."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eccache.app.tiers.circuit_breaker import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    CircuitBreaker,
)
from eccache.testing.clock import ManualClock


def state_of(breaker: CircuitBreaker) -> str:
    """The name of its state, which changes between two looks."""
    return breaker.state.value


def failing(breaker: CircuitBreaker) -> None:
    """Make one admitted call that fails."""
    assert breaker.admits()
    breaker.failed()


def test_a_few_failures_in_a_row_open_it_and_time_half_opens_it() -> None:
    """The tier is left alone for a while, then tried with one call."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        assert "closed" == state_of(breaker)
        failing(breaker)
    assert "open" == state_of(breaker)
    assert not breaker.admits()
    clock.advance(FIRST_PAUSE_SECONDS)
    assert "half_open" == state_of(breaker)
    assert breaker.admits()
    assert not breaker.admits()
    breaker.succeeded()
    assert "closed" == state_of(breaker)
    assert breaker.admits()


def test_a_trial_that_says_nothing_is_followed_by_another() -> None:
    """Neither better nor worse is known: the pause is not longer, and the tier not trusted."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        failing(breaker)
    clock.advance(FIRST_PAUSE_SECONDS)
    for _ in range(3):
        assert breaker.admits()
        assert not breaker.admits()
        breaker.untold()
        assert "half_open" == state_of(breaker)


def test_successes_between_failures_keep_it_closed() -> None:
    """Only failures in a row count."""
    breaker = CircuitBreaker(ManualClock())
    for _ in range(50):
        failing(breaker)
        assert breaker.admits()
        breaker.succeeded()
    assert "closed" == state_of(breaker)


def test_each_failed_trial_doubles_the_pause_up_to_a_bound() -> None:
    """A tier that stays dead costs one call a minute."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN):
        failing(breaker)
    pause = FIRST_PAUSE_SECONDS
    for _ in range(10):
        clock.advance(pause - 0.001)
        assert "open" == state_of(breaker)
        clock.advance(0.001)
        failing(breaker)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    assert LONGEST_PAUSE_SECONDS == pause


def test_a_straggler_does_not_lengthen_the_pause() -> None:
    """Calls that were under way when it opened say nothing new."""
    clock = ManualClock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES_TO_OPEN + 2):
        assert breaker.admits()
    for _ in range(FAILURES_TO_OPEN + 2):
        breaker.failed()
        clock.advance(0.1)
    clock.advance(FIRST_PAUSE_SECONDS - 0.2)
    assert "half_open" == state_of(breaker)


class BreakerMachine(RuleBasedStateMachine):
    """Any order of calls and outcomes: a tier that works is always asked again in bounded time."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.breaker = CircuitBreaker(self.clock)
        self.under_way = 0

    @rule()
    def ask(self) -> None:
        """Begin a call if one is admitted."""
        self.under_way += self.breaker.admits()

    @rule(well=st.booleans())
    def answer(self, well: bool) -> None:  # noqa: FBT001
        """End a call."""
        if self.under_way:
            self.under_way -= 1
            self.breaker.succeeded() if well else self.breaker.failed()

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    @invariant()
    def it_is_never_shut_for_good(self) -> None:
        """After the longest pause a call is admitted, once none is under way."""
        if self.under_way == 0:
            self.clock.advance(LONGEST_PAUSE_SECONDS)
            assert "open" != state_of(self.breaker)
            self.clock.advance(-LONGEST_PAUSE_SECONDS)


TestBreakerMachine = BreakerMachine.TestCase
