"""A call that never returns costs its time limit and nothing more."""

from __future__ import annotations

import functools
import os
import signal
import threading
import weakref
from collections.abc import Iterator

import pytest

from eccache.app.bounded_calls import BoundedCalls
from eccache.domain.errors import StoreTimeout

SOON = 0.02
LONG = 30.0


class Hang:
    """A call that returns only when it is let go."""

    def __init__(self, result: str = "late") -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self.result = result

    def __call__(self) -> str:
        """Wait, then return."""
        self.started.set()
        assert self.let_go.wait(LONG)
        return self.result


@pytest.fixture
def calls() -> Iterator[BoundedCalls]:
    """Bounded calls of which two may hang."""
    calls = BoundedCalls("test-calls", max_lost=2)
    yield calls
    calls.close()


def test_a_call_returns_what_the_function_returns(calls: BoundedCalls) -> None:
    """The caller sees no difference to calling it itself."""
    assert [0, 1, 2] == [calls.call(functools.partial(abs, n), LONG) for n in range(3)]


def test_a_call_raises_what_the_function_raises(calls: BoundedCalls) -> None:
    """An error crosses the threads."""
    with pytest.raises(KeyError, match="gone"):
        calls.call(functools.partial(os.environ.__getitem__, "gone"), LONG)


def test_calls_one_after_another_use_one_thread(calls: BoundedCalls) -> None:
    """A hand-over costs microseconds only because threads are kept."""
    assert 1 == len({calls.call(threading.get_ident, LONG) for _ in range(20)})


def test_an_idle_thread_keeps_nothing_of_its_last_call(calls: BoundedCalls) -> None:
    """What a call returned is its caller's alone: an entry is unmapped when the caller lets it go."""
    gone = threading.Event()
    result = calls.call(Hang, LONG)
    weakref.finalize(result, gone.set)
    del result
    assert gone.wait(5.0)


def test_a_hung_call_is_a_timeout(calls: BoundedCalls) -> None:
    """The caller goes on when its time is up."""
    hang = Hang()
    with pytest.raises(StoreTimeout, match=r"0\.02 s"):
        calls.call(hang, SOON)
    assert 1 == calls.lost
    assert "fine" == calls.call(lambda: "fine", LONG)
    hang.let_go.set()


def test_a_late_result_is_discarded_and_its_thread_counted_no_longer() -> None:
    """What comes too late is closed by the thread that made it, which then is not lost any more."""
    calls = BoundedCalls("test-calls", max_lost=1)
    hang, discarded = Hang(), threading.Event()
    results: list[str] = []

    def discard(result: str) -> None:
        results.append(result)
        discarded.set()

    with pytest.raises(StoreTimeout):
        calls.call(hang, SOON, discard=discard)
    hang.let_go.set()
    assert discarded.wait(LONG)
    assert ["late"] == results
    while calls.lost:
        threading.Event().wait(0.001)
    assert 1 == calls.call(lambda: 1, LONG)
    calls.close()


def test_too_many_hung_calls_fail_at_once_until_one_returns(calls: BoundedCalls) -> None:
    """The circuit is open for as long as the bound of lost threads is reached."""
    hangs = [Hang(), Hang()]
    for hang in hangs:
        with pytest.raises(StoreTimeout):
            calls.call(hang, SOON)
    with pytest.raises(StoreTimeout, match="2 earlier calls still hang"):
        calls.call(lambda: pytest.fail("must not run"), LONG)
    hangs[0].let_go.set()
    while calls.lost == 2:
        threading.Event().wait(0.001)
    assert "again" == calls.call(lambda: "again", LONG)
    hangs[1].let_go.set()


def test_close_ends_idle_threads_and_later_calls_still_work() -> None:
    """A closed pool keeps no thread."""
    calls = BoundedCalls("test-closing")
    calls.call(lambda: None, LONG)
    calls.close()
    calls.close()
    assert 5 == calls.call(lambda: 5, LONG)
    for thread in threading.enumerate():
        if thread.name == "test-closing":
            thread.join(LONG)
            assert not thread.is_alive()


class Interrupted(BaseException):
    """What a signal's handler raised."""


def interrupt(seconds: float) -> None:
    """Have SIGALRM's handler raise in this thread, which is the main one."""

    def handler(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def test_a_caller_who_is_interrupted_leaves_no_thread_behind(calls: BoundedCalls) -> None:
    """Ctrl-C during a call costs no thread: it counts as lost until the call ends, and ends with it."""
    hang = Hang()
    interrupt(SOON)
    with pytest.raises(Interrupted):
        calls.call(hang, LONG)
    assert 1 == calls.lost
    hang.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "test-calls":
            thread.join(LONG)
            assert not thread.is_alive()
    assert 0 == calls.lost


def test_a_signals_handler_may_close_what_its_thread_is_using(calls: BoundedCalls) -> None:
    """A handler that runs in the middle of a call of its own thread doesn't wait for that thread."""
    calls.call(lambda: None, LONG)
    with calls._lock:  # noqa: SLF001 - where a signal may come
        assert calls._lock.acquire(blocking=False)  # noqa: SLF001 - or the rest would hang
        calls.close()
    assert "still" == calls.call(lambda: "still", LONG)
