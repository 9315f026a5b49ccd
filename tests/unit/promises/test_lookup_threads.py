"""Threads that look up: they may hang, are replaced up to a bound, and leave no copy behind."""

import threading
from collections.abc import Callable, Iterator

import pytest

from eccache.app.promises.lookup_job import Finding, LookupJob
from eccache.app.promises.lookup_threads import LookupThreads
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.domain.outcomes import LookupOutcome
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.clock import ManualClock
from eccache.testing.frames import ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.parts import (
    SHORT,
    TrackedCopy,
    ample_budget,
    job_of,
    lookup_threads,
    until,
)

TIMEOUT = 10.0


class Gates:
    """A look-up that hangs for each job until the test lets it go."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.gates: dict[LookupJob, threading.Event] = {}
        self.copies: list[TrackedCopy] = []
        self.budget = ample_budget()

    def __call__(self, job: LookupJob) -> Finding:
        """Hang, then return a copy."""
        self.entered.release()
        assert self.gates[job].wait(SHORT)
        self.budget.reserve(4096)
        self.copies.append(TrackedCopy(4096))
        return PromisedCopy(self.copies[-1], self.budget, TensorSpec("int8", (1, 1)))


class Running:
    """Threads over gates, and everything a test does with them."""

    def __init__(self, *, threads: int = 1, max_hung: int = 2) -> None:
        self.gates = Gates()
        self.clock = ManualClock()
        self.telemetry = RecordingTelemetry()
        self._told: list[tuple[LookupJob, Finding]] = []
        self.threads = LookupThreads(
            self.gates,
            threads=threads,
            max_hung=max_hung,
            clock=self.clock,
            telemetry=self.telemetry,
        )

    def start(self) -> LookupJob:
        """Start a look-up, which has to be accepted."""
        job = self.job()
        assert self.threads.start(job)
        self.threads.begin()
        return job

    def job(self) -> LookupJob:
        """Return a new look-up."""
        job = job_of(ref_of("a"), deadline=self.clock.monotonic() + TIMEOUT)
        self.gates.gates[job] = threading.Event()
        return job

    def entered(self) -> None:
        """Wait until one more look-up is being carried out."""
        assert self.gates.entered.acquire(timeout=SHORT)

    def let_go(self, job: LookupJob) -> None:
        """Let a look-up end."""
        self.gates.gates[job].set()

    def found(self) -> tuple[LookupJob, Finding]:
        """Wait for the next finding; a copy is disposed of, as the ledger would in the end."""
        if not self._told:
            self._told = until(lambda: list(self.threads.findings()) or None)
        job, finding = self._told.pop(0)
        if isinstance(finding, PromisedCopy):
            self.threads.dispose(finding)
        return job, finding

    def none_left(self) -> None:
        """Wait until every thread has ended and every copy is closed."""
        until(lambda: not lookup_threads(closer=True) or None)
        assert [] == [copy for copy in self.gates.copies if not copy.closed]
        assert 0 == self.gates.budget.nbytes


@pytest.fixture
def make() -> Iterator[Callable[..., Running]]:
    """Makes threads, which all have to end with the test."""
    made: list[Running] = []

    def new(**bounds: int) -> Running:
        made.append(Running(**bounds))
        return made[-1]

    yield new
    for running in made:
        for gate in running.gates.gates.values():
            gate.set()
        running.threads.close()
        running.none_left()


def test_a_look_up_is_carried_out_and_told_once(make: Callable[..., Running]) -> None:
    """What was found comes back with the job that asked for it."""
    running = make()
    job = running.start()
    running.let_go(job)
    told, finding = running.found()
    assert job is told
    assert isinstance(finding, PromisedCopy)
    assert () == running.threads.findings()


def test_as_many_look_ups_run_at_once_as_there_are_threads(make: Callable[..., Running]) -> None:
    """The next one waits for a thread, in the order they came."""
    running = make(threads=2)
    first, second, third = running.start(), running.start(), running.start()
    running.entered()
    running.entered()
    assert not running.gates.entered.acquire(blocking=False)
    running.let_go(second)
    running.entered()
    running.let_go(third)
    running.let_go(first)
    told = {running.found()[0] for _ in range(3)}
    assert {first, second, third} == told
    assert 2 == len(lookup_threads())


def test_an_idle_thread_takes_the_next_look_up(make: Callable[..., Running]) -> None:
    """No thread is started while one waits."""
    running = make(threads=4)
    for _ in range(3):
        job = running.start()
        running.let_go(job)
        running.found()
        until(lambda: running.threads.idle == 1 or None)
    assert 1 == len(lookup_threads())


def test_threads_are_daemons_with_names(make: Callable[..., Running]) -> None:
    """A hung one must not keep the process, and an operator should find it in a stack dump."""
    running = make()
    running.start()
    running.entered()
    (thread,) = lookup_threads()
    assert (True, "eccache-lookup-1") == (thread.daemon, thread.name)


def test_a_fault_in_a_look_up_is_an_error_and_the_thread_goes_on(
    make: Callable[..., Running],
) -> None:
    """A bug costs an encoder run, not a thread."""
    running = make()
    missing_gate = job_of(ref_of("a"))
    assert running.threads.start(missing_gate)
    running.threads.begin()
    assert (missing_gate, LookupOutcome.ERROR) == running.found()
    assert 1 == running.telemetry.counters["faults:lookup"]
    job = running.start()
    running.let_go(job)
    assert job is running.found()[0]


def test_a_copy_that_nobody_wants_when_it_is_made_is_closed(make: Callable[..., Running]) -> None:
    """An aborted request leaves nothing, though no one calls again."""
    running = make()
    job = running.start()
    running.entered()
    running.threads.abandon(job)
    running.let_go(job)
    until(lambda: running.gates.copies or None)
    until(lambda: running.gates.copies[0].closed or None)
    assert () == running.threads.findings()


def test_a_copy_that_nobody_wants_any_more_before_it_is_told_is_closed(
    make: Callable[..., Running],
) -> None:
    """Made, not yet told, abandoned: closed."""
    running = make()
    job = running.start()
    running.let_go(job)
    until(lambda: running.threads.undelivered or None)
    running.threads.abandon(job)
    assert () == running.threads.findings()
    until(lambda: running.gates.copies[0].closed or None)


def test_a_queued_look_up_that_nobody_wants_is_never_carried_out(
    make: Callable[..., Running],
) -> None:
    """It costs no read."""
    running = make()
    first, second, third = running.start(), running.start(), running.start()
    running.threads.abandon(second)
    for job in (first, second, third):
        running.let_go(job)
    assert {first, third} == {running.found()[0] for _ in range(2)}
    assert 2 == len(running.gates.copies)


def test_a_thread_that_waits_is_not_woken_before_the_scheduler_is_done(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it would only wait for Python's lock, and the scheduler for it."""
    running = make()
    running.let_go(running.start())
    running.found()
    until(lambda: running.threads.idle or None)
    woken: list[int] = []
    condition = running.threads._wake  # noqa: SLF001
    notify = condition.notify

    def count(waiters: int = 1) -> None:
        woken.append(waiters)
        notify(waiters)

    monkeypatch.setattr(condition, "notify", count)
    jobs = [running.job(), running.job()]
    assert [True, True] == [running.threads.start(job) for job in jobs]
    assert [] == woken
    running.threads.begin()
    assert [2] == woken
    for job in jobs:
        running.let_go(job)
    assert jobs == [running.found()[0] for _ in jobs]


def test_a_thread_that_hangs_is_replaced(make: Callable[..., Running]) -> None:
    """A hung read costs its own request, and the next look-up is carried out."""
    running = make()
    hanging = running.start()
    running.entered()
    running.clock.advance(TIMEOUT)
    running.threads.abandon(hanging)
    assert 1 == running.threads.hung
    assert 1 == len(running.telemetry.named("lookup.thread.hung"))
    job = running.start()
    running.let_go(job)
    assert job is running.found()[0]


def test_what_was_queued_behind_a_thread_that_hangs_is_carried_out(
    make: Callable[..., Running],
) -> None:
    """Its replacement starts with that, without another look-up to set it off."""
    running = make()
    hanging = running.start()
    running.entered()
    running.clock.advance(TIMEOUT / 2)
    queued = running.start()
    running.clock.advance(TIMEOUT / 2)
    running.threads.abandon(hanging)
    running.let_go(queued)
    assert queued is running.found()[0]


def test_a_thread_before_its_deadline_is_not_replaced(make: Callable[..., Running]) -> None:
    """An aborted look-up is not a hung one."""
    running = make()
    job = running.start()
    running.entered()
    running.clock.advance(TIMEOUT - 0.001)
    running.threads.abandon(job)
    running.start()
    assert 0 == running.threads.hung
    assert 1 == len(lookup_threads())


def test_at_the_bound_of_hung_threads_look_ups_are_refused(make: Callable[..., Running]) -> None:
    """However many reads hang, threads are bounded, and a request is told at once."""
    running = make(threads=1, max_hung=2)
    hanging = []
    for _ in range(3):
        hanging.append(running.start())
        running.entered()
        running.clock.advance(TIMEOUT)
        running.threads.abandon(hanging[-1])
    assert not running.threads.start(running.job())
    assert 3 == len(lookup_threads())
    assert 2 == running.threads.hung


def test_a_hung_thread_that_comes_back_ends_and_makes_room(make: Callable[..., Running]) -> None:
    """The store recovers, and so does the cache, by itself."""
    running = make(threads=1, max_hung=1)
    hanging = []
    for _ in range(2):
        hanging.append(running.start())
        running.entered()
        running.clock.advance(TIMEOUT)
        running.threads.abandon(hanging[-1])
    assert not running.threads.start(running.job())
    for job in hanging:
        running.let_go(job)
    until(lambda: running.threads.hung == 0 or None)
    until(lambda: running.threads.idle == 1 or None)
    job = running.start()
    running.let_go(job)
    assert job is running.found()[0]
    until(lambda: 1 == len(lookup_threads()) or None)


def test_an_answer_of_a_hung_thread_that_is_still_wanted_is_told(
    make: Callable[..., Running],
) -> None:
    """Another request, that came later, may have time left for it."""
    running = make()
    late = running.start()
    running.entered()
    running.clock.advance(TIMEOUT)
    job = running.start()
    assert 1 == running.threads.hung
    running.let_go(late)
    assert late is running.found()[0]
    running.let_go(job)
    assert job is running.found()[0]


def test_a_system_without_threads_refuses_look_ups(
    make: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised into the scheduler, and nothing is queued for nobody."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    running = make()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert running.threads.start(running.job()) is False
    assert 1 == len(running.telemetry.named("lookup.thread.refused"))
    budget = running.gates.budget
    budget.reserve(4096)
    copy = TrackedCopy(4096)
    running.threads.dispose(PromisedCopy(copy, budget, TensorSpec("int8", (1, 1))))
    assert copy.closed
    monkeypatch.undo()
    job = running.start()
    running.let_go(job)
    assert job is running.found()[0]


def test_a_copy_is_disposed_of_on_another_thread(make: Callable[..., Running]) -> None:
    """The scheduler's thread never gives memory back itself."""
    where: list[str] = []

    class Noting(TrackedCopy):
        def close(self) -> None:
            where.append(threading.current_thread().name)
            super().close()

    running = make()
    for _ in range(2):
        running.gates.budget.reserve(4096)
        copy = PromisedCopy(Noting(4096), running.gates.budget, TensorSpec("int8", (1, 1)))
        running.threads.dispose(copy)
    until(lambda: 2 == len(where) or None)
    assert {"eccache-lookup-closer"} == set(where)


def test_closing_closes_what_was_found_and_forgets_what_is_queued(
    make: Callable[..., Running],
) -> None:
    """Found but not told, under way, queued, hung: no copy and no thread stays."""
    running = make(threads=1, max_hung=1)
    hanging = running.start()
    running.entered()
    running.clock.advance(TIMEOUT)
    found = running.start()
    running.let_go(found)
    until(lambda: running.threads.undelivered or None)
    running.entered()
    under_way, _queued = running.start(), running.start()
    running.entered()
    ended = threading.Thread(target=running.threads.close)
    ended.start()
    until(lambda: under_way.abandoned or None)
    running.let_go(under_way)
    ended.join()
    assert not running.threads.start(running.job())
    running.let_go(hanging)
    running.none_left()
    assert 3 == len(running.gates.copies)


def test_closing_forgets_what_is_no_copy(make: Callable[..., Running]) -> None:
    """A miss that nobody was told of needs nothing."""
    running = make()
    assert running.threads.start(job_of(ref_of("a")))
    running.threads.begin()
    until(lambda: running.threads.undelivered or None)
    running.threads.close()
    assert () == running.threads.findings()


def test_closing_waits_for_threads_that_end(make: Callable[..., Running]) -> None:
    """Afterwards none is left: idle ones, the one that closes copies, and one that ends just then."""
    running = make(threads=2)
    first, second = running.start(), running.start()
    running.entered()
    running.entered()
    running.let_go(first)
    running.found()
    until(lambda: 1 == running.threads.idle or None)
    running.let_go(second)
    running.threads.close()
    assert [] == lookup_threads(closer=True)


def test_closing_does_not_wait_for_a_thread_that_hangs(make: Callable[..., Running]) -> None:
    """A server stops though its disk does not answer."""
    running = make(threads=2, max_hung=0)
    running.start()
    running.entered()
    running.clock.advance(TIMEOUT)
    running.threads.close()
    running.threads.close()
    assert 1 == len(lookup_threads())


def test_disposing_after_close_closes_at_once(make: Callable[..., Running]) -> None:
    """No copy waits for a thread that is gone."""
    running = make()
    running.threads.close()
    running.gates.budget.reserve(4096)
    copy = TrackedCopy(4096)
    running.threads.dispose(PromisedCopy(copy, running.gates.budget, TensorSpec("int8", (1, 1))))
    assert copy.closed
