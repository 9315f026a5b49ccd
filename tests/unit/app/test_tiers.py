"""Stores behind one another: what a remote tier has is served, whatever state it is in."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from eccache.adapters.memory import MemoryStore
from eccache.app.engine import ECCacheEngine
from eccache.app.telemetry import LocalTelemetry
from eccache.app.tiers.circuit_breaker import FAILURES_TO_OPEN, FIRST_PAUSE_SECONDS, TierState
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.tiers.tiered_store import TieredStore
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.frame import Frame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryStore, ReadLease
from eccache.testing.clock import ManualClock
from tests.unit.app.engines import LONG, engine_over, flip_a_bit, memory_store
from tests.unit.wrapped_store import WrappedStore

OUTPUT = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)


class Host:
    """One host: a local store of its own, and a remote tier that others share."""

    def __init__(
        self, open_remote: Callable[[], EntryStore], timeout_seconds: float = LONG
    ) -> None:
        self.clock = ManualClock()
        self.telemetry = LocalTelemetry(self.clock, "eccache.test")
        self.local = memory_store()
        self.remote = RemoteTier(
            "remote",
            open_remote,
            timeout_seconds=timeout_seconds,
            clock=self.clock,
            telemetry=self.telemetry,
        )
        self.tiers = TieredStore(
            self.local, [self.remote], telemetry=self.telemetry, close_timeout_seconds=LONG
        )
        self.cache: ECCacheEngine[torch.Tensor] = engine_over(self.tiers)

    def put(self, mm_hash: str = "h") -> None:
        """Put, and wait until it is in every tier that takes it."""
        assert self.cache.put(mm_hash, OUTPUT)
        assert self.cache.flush(LONG)
        self.settle()

    def settle(self) -> None:
        """Wait for copies between tiers."""
        self.tiers._copier.flush(LONG)  # noqa: SLF001 - nothing else waits for copies alone


def shared() -> MemoryStore:
    """A remote that outlives any host."""
    return memory_store()


class Unclosed(WrappedStore):
    """A store that survives its users."""

    def close(self) -> None:
        """Stay open for the next host."""


def test_what_one_host_stores_another_gets_and_keeps() -> None:
    """A remote hit is served, and local from then on."""
    remote = Unclosed(shared())
    a, b = Host(lambda: remote), Host(lambda: remote)
    a.put()
    found = b.cache.get("h")
    assert found is not None
    assert torch.equal(OUTPUT, found)
    b.settle()
    assert b.local.contains(b.cache.ref("h"))
    assert {"tier_hits:remote": 1} == b.telemetry.totals()
    assert b.cache.get("h") is not None
    assert {"tier_hits:remote": 1} == b.telemetry.totals()
    assert {"tier_stored:remote": 1} == a.telemetry.totals()
    a.cache.close()
    b.cache.close()


def test_contains_asks_every_tier() -> None:
    """What only a remote has counts as there."""
    remote = Unclosed(shared())
    a, b = Host(lambda: remote), Host(lambda: remote)
    a.put()
    assert b.cache.contains("h")
    assert not b.cache.contains("other")


def test_damage_in_a_remote_is_a_miss_counted_as_corrupt_and_removed() -> None:
    """A flipped bit far away is no other than one nearby, and nothing of it is kept."""
    remote = shared()
    a, b = Host(lambda: Unclosed(remote)), Host(lambda: Unclosed(remote))
    a.put()
    flip_a_bit(remote, a.cache.ref("h"), bit=4096 * 8)
    assert b.cache.get("h") is None
    assert {"tier_corrupt:remote": 1} == b.telemetry.totals()
    assert 0 == b.local.stats().entries
    assert 0 == remote.stats().entries


def test_bytes_that_change_while_a_remote_is_read_are_a_miss() -> None:
    """What was copied out is what is verified."""
    remote = shared()

    class Changing(Unclosed):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            """Lease, and change the bytes before they are read."""
            lease = super().get(ref, deadline=deadline)
            flip_a_bit(remote, ref, bit=4096 * 8)
            return lease

    a, b = Host(lambda: Unclosed(remote)), Host(lambda: Changing(remote))
    a.put()
    assert b.cache.get("h") is None
    assert 1 == b.telemetry.total("tier_corrupt:remote")


def test_anothers_entry_in_a_remote_is_a_plain_miss_and_stays() -> None:
    """A collision is nobody's fault."""
    remote = shared()
    a, b = Host(lambda: Unclosed(remote)), Host(lambda: Unclosed(remote))
    a.put()
    real = a.cache.ref("h")
    colliding = EntryRef(real.namespace, real.key, bytes(32))
    assert b.remote.fetch(colliding) is None
    assert {"tier_misses:remote": 1} == b.telemetry.totals()
    assert 1 == remote.stats().entries


def test_a_remote_that_can_not_be_opened_is_misses_then_works() -> None:
    """A server starts without its remote, and finds it when it is there."""
    remote = Unclosed(shared())
    a = Host(lambda: remote)
    a.put()
    attempts: list[None] = []

    def open_at_third() -> EntryStore:
        attempts.append(None)
        if len(attempts) <= FAILURES_TO_OPEN:
            raise ConnectionRefusedError
        return remote

    b = Host(open_at_third)
    for _ in range(10):
        assert b.cache.get("h") is None
    assert FAILURES_TO_OPEN == len(attempts)
    assert FAILURES_TO_OPEN == b.telemetry.total("tier_errors:remote")
    b.clock.advance(FIRST_PAUSE_SECONDS)
    assert b.cache.get("h") is not None
    assert "closed" == b.remote.state.value
    b.cache.close()


def test_a_dead_remote_does_not_touch_local_hits_and_puts() -> None:
    """What is local is served at local speed."""

    def never() -> EntryStore:
        raise ConnectionRefusedError

    host = Host(never)
    host.put()
    assert host.cache.get("h") is not None
    stats = host.cache.stats()
    assert (1, 0, 0) == (stats.hits, stats.errors, stats.failed_puts)
    host.cache.close()


def test_a_remote_that_hangs_costs_its_time_limit_then_nothing() -> None:
    """A frozen remote is left alone after a few tries; close does not wait for it."""
    let_go = threading.Event()

    class Frozen(Unclosed):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            """Hang."""
            assert let_go.wait(LONG)
            return super().get(ref, deadline=deadline)

    host = Host(lambda: Frozen(shared()), timeout_seconds=0.02)
    for _ in range(20):
        assert host.cache.get("h") is None
    assert FAILURES_TO_OPEN == host.telemetry.total("tier_timeouts:remote")
    assert {"misses": 20} == {"misses": host.cache.stats().misses}
    host.cache.close()
    let_go.set()


def test_a_callers_deadline_bounds_a_fetch() -> None:
    """Nothing waits for a remote longer than whoever asks."""
    let_go = threading.Event()

    class Frozen(Unclosed):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            """Hang."""
            assert let_go.wait(LONG)
            return super().get(ref, deadline=deadline)

    host = Host(lambda: Frozen(shared()))
    ref = host.cache.ref("h")
    assert host.remote.fetch(ref, deadline=host.clock.monotonic() + 0.02) is None
    assert host.remote.fetch(ref, deadline=host.clock.monotonic() - 1) is None
    assert 2 == host.telemetry.total("tier_timeouts:remote")
    let_go.set()


def test_callers_whose_time_runs_out_say_nothing_of_the_tier() -> None:
    """A burst of look-ups that wait for one another ends with calls that get no time: it stays asked."""
    clock_moved = threading.Event()

    class Slow(Unclosed):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            """Answer late, after the caller has given up."""
            host.clock.advance(1.0)
            assert clock_moved.wait(LONG)
            return super().get(ref, deadline=deadline)

    host = Host(lambda: Slow(shared()))
    ref = host.cache.ref("h")
    for _ in range(2 * FAILURES_TO_OPEN):
        assert host.remote.fetch(ref, deadline=host.clock.monotonic() + 0.01) is None
        assert host.remote.fetch(ref, deadline=host.clock.monotonic()) is None
    assert TierState.CLOSED is host.remote.state
    assert 4 * FAILURES_TO_OPEN == host.telemetry.total("tier_timeouts:remote")
    clock_moved.set()


def test_removal_reaches_every_tier_but_eviction_and_quarantine_do_not() -> None:
    """The caller's decision holds everywhere; the local store's own only there."""
    remote = shared()
    host = Host(lambda: remote)
    host.put()
    ref = host.cache.ref("h")
    assert host.tiers.remove(ref, RemoveReason.EVICTED)
    assert remote.contains(ref)
    assert host.tiers.remove(ref, RemoveReason.REMOVED)
    assert not remote.contains(ref)
    assert not host.tiers.remove(ref, RemoveReason.REMOVED)


def test_what_the_local_store_rejects_still_goes_to_a_remote() -> None:
    """A local cap is no reason to compute twice on two hosts."""
    remote = shared()
    host = Host(lambda: remote)
    host.tiers.local = memory_store(capacity_nbytes=4096)
    host.put()
    assert 1 == host.cache.stats().rejected
    assert remote.contains(host.cache.ref("h"))


def test_copies_that_wait_are_bounded_and_those_left_out_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow remote doesn't fill memory."""
    monkeypatch.setattr("eccache.app.tiers.tiered_store.MAX_PENDING_COPIES", 0)
    host = Host(shared)
    host.put()
    assert 1 == host.telemetry.total("copies_left_out")
    assert 1 == host.local.stats().entries


class Full(WrappedStore):
    """A local store that can't store."""

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Refuse."""
        raise StoreFault("disk full", remedy="free space")


def test_a_copy_that_the_local_store_can_not_take_is_left_out_and_no_unexpected_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is served all the same; what the store says of itself is logged with its remedy."""
    remote = shared()
    Host(lambda: Unclosed(remote)).put()
    caplog.clear()
    host = Host(lambda: Unclosed(remote))
    host.tiers.local = Full(host.local)
    assert host.cache.get("h") is not None
    host.settle()
    totals = host.telemetry.totals()
    assert 1 == totals["copies_left_out"]
    assert not [name for name in totals if name.startswith("faults")]
    assert (
        "tiers.copy.failed cause='[ECC-STORE] disk full Remedy: free space'" == caplog.messages[-1]
    )


def test_frames_that_wait_in_memory_are_bounded_by_their_bytes() -> None:
    """What came from a remote is kept for as long as the local store is busy; not any number of it."""
    remote = shared()
    Host(lambda: Unclosed(remote)).put("one")
    let_go = threading.Event()

    class Busy(Unclosed):
        def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
            """Take long."""
            assert let_go.wait(LONG)
            return super().put(ref, frame)

    telemetry = LocalTelemetry(ManualClock(), "eccache.test")
    host = Host(lambda: Unclosed(remote))
    ref = host.cache.ref("one")
    frame_nbytes = next(iter(remote.entries())).nbytes
    local = memory_store()
    tiers = TieredStore(
        Busy(local),
        [host.remote],
        telemetry=telemetry,
        close_timeout_seconds=LONG,
        max_held_nbytes=2 * frame_nbytes,
    )
    for _ in range(5):
        assert tiers.get(ref) is not None, "it is served all the same"
    assert 3 == telemetry.total("copies_left_out")
    let_go.set()
    assert tiers._copier.flush(LONG)  # noqa: SLF001 - nothing else waits for copies alone
    assert tiers.get(ref) is not None
    assert 0 == tiers._held_nbytes  # noqa: SLF001
    assert 1 == local.stats().entries


def test_a_frame_larger_than_the_bound_is_copied_alone() -> None:
    """Else it never would be."""
    remote = shared()
    host = Host(lambda: remote)
    host.tiers = TieredStore(
        memory_store(capacity_nbytes=4096),
        [host.remote],
        telemetry=host.telemetry,
        close_timeout_seconds=LONG,
        max_held_nbytes=1,
    )
    host.cache = engine_over(host.tiers)
    host.put()
    assert remote.contains(host.cache.ref("h"))


def test_an_entry_evicted_before_its_copy_is_not_copied() -> None:
    """What the local store did not keep is not worth a remote's room."""
    remote = shared()
    host = Host(lambda: remote)
    host.local.get = lambda ref, *, deadline=None: None  # type: ignore[method-assign]  # noqa: ARG005
    host.put()
    assert 0 == remote.stats().entries


def test_close_waits_for_copies_and_closes_every_tier() -> None:
    """What was stored is in the remote when close returns."""
    remote = Unclosed(shared())
    host = Host(lambda: remote)
    for number in range(20):
        assert host.cache.put(f"h{number}", OUTPUT)
    host.cache.close()
    assert 20 == remote.stats().entries
    assert host.remote.fetch(host.cache.ref("h1")) is None


def test_a_lease_on_a_remote_frame_copies_what_is_asked_for() -> None:
    """Any part, bounded by the frame's end."""
    remote = Unclosed(shared())
    a, b = Host(lambda: remote), Host(lambda: remote)
    a.put()
    lease = b.tiers.get(b.cache.ref("h"))
    assert lease is not None
    whole = bytes(lease.view())
    assert len(whole) == lease.nbytes
    target = bytearray(10)
    assert 10 == lease.read_into(memoryview(target), 4096)
    assert whole[4096:4106] == target
    assert 4 == lease.read_into(memoryview(target), lease.nbytes - 4)
    assert 0 == lease.read_into(memoryview(target), lease.nbytes)
    lease.close()
    assert [] != list(a.tiers.entries())


def test_a_tier_that_is_being_opened_is_a_miss_and_no_fault() -> None:
    """A store that takes long to open delays nobody, and its breaker has nothing to count."""
    opening, may_open = threading.Event(), threading.Event()

    def slow() -> EntryStore:
        opening.set()
        may_open.wait()
        return Unclosed(shared())

    host = Host(slow)
    host.remote.open_in_background()
    opening.wait()
    assert not host.remote.wait_until_tried(0.0)
    for _ in range(2 * FAILURES_TO_OPEN):
        assert host.remote.fetch(host.cache.ref("h")) is None
    assert {"tier_skipped:remote": 2 * FAILURES_TO_OPEN} == host.telemetry.totals()
    may_open.set()
    assert host.remote.wait_until_tried(LONG)
    host.put()
    assert host.remote.contains(host.cache.ref("h"))
    host.cache.close()


def test_a_tier_that_can_not_be_opened_in_advance_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning at the start, and misses."""

    def broken() -> EntryStore:
        raise OSError("no such host")

    host = Host(broken)
    host.remote.open_in_background()
    assert host.remote.wait_until_tried(LONG)
    assert "remote.open.fault.absorbed" in caplog.text
    assert host.cache.get("h") is None
    host.cache.close()


def test_a_tier_closed_while_it_is_opened_is_closed_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that stops at once leaves nothing open, and nothing to read."""
    opening, may_open, closed = threading.Event(), threading.Event(), threading.Event()

    class Closing(Unclosed):
        def close(self) -> None:
            """Tell."""
            closed.set()

    def slow() -> EntryStore:
        opening.set()
        may_open.wait()
        return Closing(shared())

    host = Host(slow, timeout_seconds=0.01)
    host.remote.open_in_background()
    opening.wait()
    host.cache.close()
    may_open.set()
    closed.wait()
    assert "absorbed" not in caplog.text


def test_closing_waits_for_a_tier_that_is_being_opened() -> None:
    """Within its time limit: what is opened is closed again before the process may end."""
    opening, closed = threading.Event(), threading.Event()

    class Closing(Unclosed):
        def close(self) -> None:
            """Tell."""
            closed.set()

    def slow() -> EntryStore:
        opening.set()
        while not host.remote._closed:  # noqa: SLF001 - open until it is being closed
            pass
        return Closing(shared())

    host = Host(slow)
    host.remote.open_in_background()
    opening.wait()
    host.cache.close()
    assert closed.is_set()


def test_a_tier_tells_when_it_goes_and_when_it_is_back() -> None:
    """Once each time, not with every call."""
    alive = [True]

    class Mortal(WrappedStore):
        def contains(self, ref: EntryRef) -> bool:
            """Answer while alive."""
            if not alive[0]:
                raise StoreFault("dead")
            return super().contains(ref)

    host = Host(lambda: Mortal(shared()))
    told: list[float] = []

    def ask(*, answers: bool) -> None:
        alive[0] = answers
        for _ in range(FAILURES_TO_OPEN + 1):
            host.remote.contains(host.cache.ref("h"))
        report = host.telemetry.take_report()
        told.extend([] if report is None else report.observations.get("tier_up:remote", []))

    ask(answers=True)
    ask(answers=False)
    host.clock.advance(2 * FIRST_PAUSE_SECONDS)
    ask(answers=False)
    host.clock.advance(4 * FIRST_PAUSE_SECONDS)
    ask(answers=True)
    ask(answers=True)
    assert [1.0, 0.0, 1.0] == told
    host.cache.close()


def test_an_error_is_no_miss() -> None:
    """A dead tier shows as errors, and then as calls that were not made; misses are answers."""

    class Dead(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            """Fail."""
            raise StoreFault("dead")

    host = Host(lambda: Dead(shared()))
    for _ in range(FAILURES_TO_OPEN + 2):
        assert host.remote.fetch(host.cache.ref("h")) is None
    assert {
        "tier_errors:remote": FAILURES_TO_OPEN,
        "tier_skipped:remote": 2,
    } == host.telemetry.totals()
    host.cache.close()
