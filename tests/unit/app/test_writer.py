"""The background writer: order, flush, failure, idleness, and a write that hangs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pytest

from eccache.app import writer as writer_module
from eccache.app.writer import BackgroundWriter

LONG = 30.0


def nothing() -> None:
    """Do nothing when idle."""


def no_thread(_: threading.Thread) -> None:
    """Stand in for `Thread.start` where the system allows none."""
    msg = "can't start new thread"
    raise RuntimeError(msg)


def appending(ran: list[int], number: int) -> Callable[[], bool]:
    """Return a job that notes that it ran."""

    def job() -> bool:
        ran.append(number)
        return True

    return job


def test_jobs_of_one_thread_run_in_order() -> None:
    """Puts of one key must not overtake each other."""
    writer = BackgroundWriter(1, nothing)
    ran: list[int] = []
    for number in range(50):
        writer.submit(appending(ran, number))
    assert writer.flush(LONG)
    assert list(range(50)) == ran
    assert writer.close(LONG)


def test_flush_tells_of_a_failure_once() -> None:
    """A failed put is reported by the next flush, and by no later one."""
    writer = BackgroundWriter(2, nothing)
    writer.submit(lambda: False)
    assert not writer.flush(LONG)
    assert writer.flush(LONG)
    assert writer.close(LONG)


def test_flush_gives_up_when_its_time_is_up() -> None:
    """A caller is not held longer than it asked for."""
    writer, let_go = BackgroundWriter(1, nothing), threading.Event()
    writer.submit(lambda: let_go.wait(LONG))
    assert not writer.flush(0.01)
    assert 1 == writer.pending
    let_go.set()
    assert writer.flush(LONG)
    assert writer.close(LONG)


def test_close_waits_for_every_accepted_job() -> None:
    """`close` loses nothing that was accepted."""
    writer = BackgroundWriter(2, nothing)
    ran: list[int] = []
    for number in range(100):
        writer.submit(appending(ran, number))
    assert writer.close(LONG)
    assert list(range(100)) == sorted(ran)


def test_close_gives_up_on_a_job_that_hangs() -> None:
    """A write that never returns doesn't keep a process from ending."""
    writer, let_go = BackgroundWriter(1, nothing), threading.Event()
    writer.submit(lambda: let_go.wait(LONG))
    assert not writer.close(0.02)
    let_go.set()


def test_an_idle_writer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory kept for the next put is given back when there is none."""
    monkeypatch.setattr(writer_module, "IDLE_SECONDS", 0.005)
    idle = threading.Event()
    writer = BackgroundWriter(1, idle.set)
    writer.submit(lambda: True)
    assert idle.wait(LONG)
    assert writer.close(LONG)


def test_no_thread_runs_before_the_first_job() -> None:
    """A cache that is only read starts no writer."""
    before = threading.active_count()
    writer = BackgroundWriter(4, nothing)
    assert before == threading.active_count()
    assert writer.flush(0)
    assert writer.close(LONG)


def test_what_a_job_held_is_let_go_with_it() -> None:
    """A device's tensor, say: not only when the next job comes."""

    class Held:
        """Something large."""

    held = Held()
    alive = weakref.ref(held)
    writer = BackgroundWriter(1, lambda: None)
    writer.submit(lambda held=held: held is not None)  # type: ignore[misc]
    del held
    assert writer.flush(LONG)
    assert alive() is None
    assert writer.close(LONG)


def test_a_closed_writer_accepts_nothing() -> None:
    """What nobody will run is refused, and no thread is started that nobody would end."""
    writer = BackgroundWriter(1, nothing)
    assert writer.submit(lambda: True)
    assert writer.close(LONG)
    before = threading.active_count()
    assert not writer.submit(lambda: pytest.fail("must not run"))
    assert before == threading.active_count()
    assert writer.flush(0)


def test_without_a_thread_a_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the system's limit of threads nothing is accepted that would wait for ever."""
    writer = BackgroundWriter(2, nothing)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_thread)
        assert not writer.submit(lambda: pytest.fail("must not run"))
        assert writer.flush(0)
    assert writer.submit(lambda: True)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", no_thread)
        assert writer.submit(lambda: True)  # by the one that there is
    assert writer.flush(LONG)
    assert writer.close(LONG)
