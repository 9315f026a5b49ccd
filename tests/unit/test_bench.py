"""What the measurements conclude from samples."""

import json
from functools import partial
from pathlib import Path

import pytest

from bench import report
from bench.contest import Contender, Samples, compete
from bench.machine import Machine
from bench.rows import at_most_times, times_faster, within
from bench.units import shown_bytes, shown_seconds

SAMPLES = Samples({"ours": [2.0, 40.0, 3.0], "peer": [1.0, 20.0, 3.0]})


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    """A round in which the machine was slow for both changes nothing."""
    assert (2.0, 3.0, 3.0) == (
        SAMPLES.ratio("ours", "peer"),
        SAMPLES.median("ours"),
        SAMPLES.median("peer"),
    )


@pytest.mark.parametrize(("times", "verdict"), [(2.0, "met"), (1.9, "missed")])
def test_a_ratio_at_its_limit_meets_it(times: float, verdict: str) -> None:
    """At most means at most."""
    row = at_most_times(SAMPLES, "ours", "peer", operation="x", times=times)
    assert verdict == row.verdict


def test_faster_is_judged_the_other_way_round() -> None:
    """Twice as slow is not twice as fast."""
    assert "missed" == times_faster(SAMPLES, "ours", "peer", operation="x", times=2).verdict
    assert "met" == times_faster(SAMPLES, "peer", "ours", operation="x", times=2).verdict


def test_a_limit_in_seconds_is_held_against_the_median() -> None:
    """One outlier does not fail it."""
    assert "met" == within(SAMPLES, "ours", operation="x", at_most_seconds=3.0).verdict
    assert "missed" == within(SAMPLES, "ours", operation="x", at_most_seconds=2.9).verdict


def test_contenders_run_alternately_and_begin_in_turn() -> None:
    """Nobody is always first, and what surrounds a run is not timed with another's."""
    ran: list[str] = []
    contenders = [
        Contender(name, partial(ran.append, name), before=partial(ran.append, f"before {name}"))
        for name in "ab"
    ]
    samples = compete(contenders, 2, warm_up=0)
    assert ["before a", "a", "before b", "b", "before b", "b", "before a", "a"] == ran
    assert (2, 2) == (len(samples.seconds["a"]), len(samples.seconds["b"]))


def test_short_calls_are_timed_many_at_a_time() -> None:
    """The clock itself takes longer than some of them."""
    calls: list[int] = []
    Contender("a", lambda: calls.append(1), calls=50).sample()
    assert 50 == len(calls)


def test_amounts_are_shown_with_the_unit_that_fits() -> None:
    """Three digits, whatever the size."""
    assert ["1.5 s", "20 ms", "60 us", "499 ns"] == [
        shown_seconds(seconds) for seconds in (1.5, 0.02, 60e-6, 499e-9)
    ]
    assert ["130.8 MB", "512 B"] == [shown_bytes(130_800_000), shown_bytes(512)]


def test_a_quick_run_says_so_wherever_its_figures_are(tmp_path: Path) -> None:
    """Few repetitions are for seeing that it runs; nobody is to take them for results."""
    rows = [
        within(SAMPLES, "ours", operation="second", size="4 MB", at_most_seconds=3.0),
        within(SAMPLES, "ours", operation="third", size="8 MB", at_most_seconds=2.9),
    ]
    machine = Machine(
        date="2026-01-01",
        commit="abc",
        processor="x",
        cores=2,
        memory_nbytes=1 << 30,
        kernel="6",
        file_system="ext4",
        load=0.0,
        versions={"eccache": "1"},
    )
    for quick in (True, False):
        page = report.write(tmp_path, "micro", machine, rows, quick=quick)
        for text in (page.read_text(), page.with_suffix(".md").read_text()):
            assert quick == ("few repetitions" in text)
        assert quick == json.loads(page.with_suffix(".json").read_text())["quick"]
        assert page.with_suffix(".png").stat().st_size > 0
