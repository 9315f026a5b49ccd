"""Counts, observations and events of one process."""

from __future__ import annotations

import logging

import pytest

from eccache.app.guard import guarded
from eccache.app.telemetry import WARNING_INTERVAL_SECONDS, LocalTelemetry
from eccache.ports.lookup import WorkerReport
from eccache.ports.telemetry import Level
from eccache.testing.clock import ManualClock


def test_counts_add_up_and_reasons_stand_beside() -> None:
    """A reason has a counter of its own."""
    telemetry = LocalTelemetry(ManualClock())
    telemetry.count("hits")
    telemetry.count("hits", 2)
    telemetry.count("bypassed", reason="salted")
    assert 3 == telemetry.total("hits")
    assert {"hits": 3, "bypassed:salted": 1} == telemetry.totals()


def test_a_report_holds_what_came_since_the_last() -> None:
    """Reports are deltas, and None when there is nothing to say."""
    telemetry = LocalTelemetry(ManualClock())
    assert telemetry.take_report() is None
    telemetry.count("hits", 2)
    telemetry.observe("load_seconds", 0.5)
    assert (
        WorkerReport(counters={"hits": 2}, observations={"load_seconds": [0.5]})
        == telemetry.take_report()
    )
    assert telemetry.take_report() is None
    telemetry.count("hits")
    assert WorkerReport(counters={"hits": 1}) == telemetry.take_report()
    assert 3 == telemetry.total("hits")


def test_observations_are_bounded() -> None:
    """A process whose reports nobody takes doesn't grow; it keeps what it saw last."""
    telemetry = LocalTelemetry(ManualClock())
    for number in range(5000):
        telemetry.observe("load_seconds", number)
    report = telemetry.take_report()
    assert report is not None
    assert list(range(4000, 5000)) == report.observations["load_seconds"]


def test_an_event_is_one_line_with_its_values(caplog: pytest.LogCaptureFixture) -> None:
    """Values stand beside the event's name; a ready sentence stands for itself."""
    telemetry = LocalTelemetry(ManualClock(), "eccache.test")
    with caplog.at_level(logging.DEBUG, "eccache.test"):
        telemetry.event(Level.INFO, "store.entry.stored", nbytes=5, name="a\nb")
        telemetry.event(Level.INFO, "engine.put.stored", message="EC put: stored 5 bytes")
    assert [
        "store.entry.stored nbytes=5 name='a\\nb'",
        "EC put: stored 5 bytes",
    ] == caplog.messages


def test_a_level_that_is_off_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The host decides what is logged."""
    telemetry = LocalTelemetry(ManualClock(), "eccache.test")
    with caplog.at_level(logging.WARNING, "eccache.test"):
        telemetry.event(Level.INFO, "store.entry.stored")
    assert [] == caplog.messages


def test_a_warning_that_repeats_is_held_back_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A fault that comes every millisecond is one line a minute."""
    clock = ManualClock()
    telemetry = LocalTelemetry(clock, "eccache.test")
    for _ in range(100):
        telemetry.event(Level.WARNING, "store.read.failed")
    telemetry.event(Level.WARNING, "store.write.failed")
    clock.advance(WARNING_INTERVAL_SECONDS)
    telemetry.event(Level.WARNING, "store.read.failed")
    assert [
        "store.read.failed",
        "store.write.failed",
        "store.read.failed held_back=99",
    ] == caplog.messages


def test_warnings_remembered_are_bounded() -> None:
    """Event names that a fault makes up don't fill memory."""
    telemetry = LocalTelemetry(ManualClock(), "eccache.test")
    for number in range(2500):
        telemetry.event(Level.WARNING, f"event.{number}")
    assert len(telemetry._warned) <= 1000  # noqa: SLF001 - nothing else shows the bound


def test_the_guard_turns_any_exception_into_its_other_value() -> None:
    """A fault is counted with where it happened."""
    telemetry = LocalTelemetry(ManualClock(), "eccache.test")
    assert 1 == guarded(telemetry, "here", lambda: 1, otherwise=2)
    assert 2 == guarded(telemetry, "here", lambda: 1 // 0, otherwise=2)
    assert {"faults:here": 1} == telemetry.totals()
