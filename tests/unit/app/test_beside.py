"""Work beside a thread: it is waited for, whether or not anybody asks, and its faults are not lost."""

import threading

import pytest

from eccache.app.beside import Beside

SHORT = 10.0


def test_it_runs_while_its_owner_goes_on() -> None:
    """The owner does something that the work waits for."""
    done: list[int] = []
    gate = threading.Event()

    def work() -> None:
        assert gate.wait(SHORT)
        done.append(threading.get_ident())

    with Beside() as beside:
        wait = beside.run(work)
        gate.set()
        wait()
        assert len(done) == 1
        assert threading.get_ident() not in done


def test_all_has_ended_with_the_block_though_nobody_waited() -> None:
    """A store that fails in the middle leaves nothing that still reads the payload."""
    done: list[int] = []
    gates = [threading.Event(), threading.Event()]

    def work(number: int) -> None:
        assert gates[number].wait(SHORT)
        done.append(number)

    def fail() -> None:
        with Beside() as beside:
            for number, gate in enumerate(gates):
                beside.run(lambda number=number: work(number))  # type: ignore[misc]
                threading.Timer(0.05, gate.set).start()
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert [0, 1] == sorted(done)


def test_what_it_raises_reaches_whoever_waits() -> None:
    """A digest that was not finished is not taken for one."""

    def work() -> None:
        raise BufferError("gone")

    with Beside() as beside:
        wait = beside.run(work)
        with pytest.raises(BufferError, match="gone"):
            wait()


def test_without_a_thread_it_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit of processes is reached, or the interpreter is ending."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    with Beside() as beside:
        wait = beside.run(lambda: done.append(threading.get_ident()))
        assert [threading.get_ident()] == done
        wait()
