"""Probes on the scheduler's thread: quick answers, or none."""

import threading
from collections.abc import Iterator

import pytest

from eccache.adapters.memory import MemoryStore
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.promises.probe import BoundedProbe
from eccache.app.telemetry import LocalTelemetry
from eccache.app.tiers.circuit_breaker import TierState
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.tiers.tiered_store import TieredStore
from eccache.domain.entry_ref import EntryRef
from eccache.testing.clock import ManualClock
from eccache.testing.frames import frame_of, ref_of

REF = ref_of("a")


class HangingStore(MemoryStore):
    """A store whose file system hangs while `answering` is not set."""

    def __init__(self) -> None:
        super().__init__(capacity_nbytes=1 << 20, clock=ManualClock())
        self.answering = threading.Event()
        self.asked = 0

    def contains(self, ref: EntryRef) -> bool:
        """Answer once that is allowed."""
        self.asked += 1
        self.answering.wait()
        return super().contains(ref)


@pytest.fixture
def calls() -> Iterator[BoundedCalls]:
    """As wired: one call may hang."""
    calls = BoundedCalls("test-probe", max_lost=1)
    yield calls
    calls.close()


def test_a_probe_tells_absent_from_present(calls: BoundedCalls) -> None:
    """False and True are what the store says."""
    store = MemoryStore(capacity_nbytes=1 << 20, clock=ManualClock())
    probe = BoundedProbe(store, calls, 10.0)
    assert probe(REF) is False
    store.put(REF, frame_of(REF))
    assert probe(REF) is True


def test_of_a_store_that_hangs_nothing_is_known(calls: BoundedCalls) -> None:
    """The first probe waits for its time, the next does not wait at all, and afterwards all is well."""
    store = HangingStore()
    probe = BoundedProbe(store, calls, 0.01)
    assert probe(REF) is None
    assert probe(REF) is None
    assert 1 == store.asked
    store.answering.set()


def test_of_what_a_remote_tier_may_have_nothing_is_known(calls: BoundedCalls) -> None:
    """The scheduler's thread never asks the remote; while that is out of order, absent is absent."""
    clock = ManualClock()
    telemetry = LocalTelemetry(clock, "eccache.test")
    local, remote = MemoryStore(capacity_nbytes=1 << 20, clock=clock), HangingStore()
    tier = RemoteTier(
        "remote", lambda: remote, timeout_seconds=0.0, clock=clock, telemetry=telemetry
    )
    store = TieredStore(local, [tier], telemetry=telemetry, close_timeout_seconds=10.0)
    probe = BoundedProbe(store, calls, 10.0)
    assert probe(REF) is None
    assert 0 == remote.asked
    while tier.state is not TierState.OPEN:
        tier.contains(REF)
    assert probe(REF) is False
    local.put(REF, frame_of(REF))
    assert probe(REF) is True
    remote.answering.set()
    store.close()


def test_a_store_that_waits_for_nobody_is_asked_on_the_callers_thread(calls: BoundedCalls) -> None:
    """A hand-over takes several times as long as the answer, and nothing can hang."""
    askers: list[int] = []

    class LocalStore(MemoryStore):
        def contains(self, ref: EntryRef) -> bool:
            askers.append(threading.get_ident())
            return super().contains(ref)

    store = LocalStore(capacity_nbytes=1 << 20, clock=ManualClock())
    assert BoundedProbe(store, calls, 10.0, at_once=True)(REF) is False
    assert BoundedProbe(store, calls, 10.0)(REF) is False
    assert threading.get_ident() == askers[0] != askers[1]
