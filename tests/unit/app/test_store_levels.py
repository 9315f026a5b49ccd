"""What a store holds reaches telemetry, and a store that hangs hangs nobody."""

from __future__ import annotations

import threading

from eccache.app.store_levels import StoreLevels
from eccache.ports.storage import StoreStats
from eccache.testing.telemetry import RecordingTelemetry

LIMIT_SECONDS = 10


def test_levels_are_observed_again_and_again_until_closed() -> None:
    """Each look adds bytes, entries and cap; after closing there are no more looks."""
    telemetry = RecordingTelemetry()
    looks, enough = [1, 2], threading.Event()

    def stats() -> StoreStats:
        if not looks:
            enough.set()
            return StoreStats(entries=3, nbytes=300)
        number = looks.pop(0)
        return StoreStats(entries=number, nbytes=100 * number, capacity_nbytes=1000)

    levels = StoreLevels(stats, telemetry, interval_seconds=0.001)
    assert enough.wait(LIMIT_SECONDS)
    levels.close()
    assert [1.0, 2.0] == telemetry.observations["entries"][:2]
    assert [100.0, 200.0] == telemetry.observations["stored_bytes"][:2]
    assert [1000.0, 1000.0] == telemetry.observations["capacity_bytes"]


def test_closing_does_not_wait_for_a_store_that_hangs() -> None:
    """The thread is lost, the server goes on, and a late answer is not reported."""
    telemetry = RecordingTelemetry()
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()

    def stats() -> StoreStats:
        asked.set()
        answer.wait(LIMIT_SECONDS)
        answered.set()
        return StoreStats(entries=1, nbytes=1)

    levels = StoreLevels(stats, telemetry)
    assert asked.wait(LIMIT_SECONDS)
    levels.close()
    assert not answered.is_set()
    answer.set()
    assert answered.wait(LIMIT_SECONDS)
    for thread in threading.enumerate():
        if thread.name == "eccache-levels":
            thread.join(LIMIT_SECONDS)
    assert {} == telemetry.observations
