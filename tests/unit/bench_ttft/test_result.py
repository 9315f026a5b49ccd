"""What follows from samples, and what is shown of it."""

from __future__ import annotations

import json
from pathlib import Path

from eccache.app.bench_ttft.encoder_time import PLUGIN, slowest_rank_seconds
from eccache.app.bench_ttft.plot import draw
from eccache.app.bench_ttft.report import cells
from eccache.app.bench_ttft.result import Measured, Sample, TtftResult
from eccache.app.demo.plugin import lay_out_plugin


def sample(
    ttft: float, encoder: float | None = 0.0, load: float | None = None, text: str = "a"
) -> Sample:
    """One question's answer."""
    return Sample(ttft_seconds=ttft, encoder_seconds=encoder, load_seconds=load, text=text)


MEASURED = Measured(
    case="clip",
    connector="eccache",
    cold=(sample(1.0, 0.75), sample(9.0, 0.9), sample(1.2, 0.7)),
    warm=(sample(0.5, load=0.004), sample(0.4, load=0.002), sample(5.0, load=0.003)),
)
COLD_ONLY = Measured(case="clip", connector="none", cold=(sample(1.0, None),))


def test_figures_are_medians_over_the_repetitions() -> None:
    """One slow start changes nothing."""
    assert (1.2, 0.5, 0.75, 0.0, 0.003) == (
        MEASURED.cold_seconds,
        MEASURED.warm_seconds,
        MEASURED.encoder_seconds,
        MEASURED.warm_encoder_seconds,
        MEASURED.load_seconds,
    )


def test_what_was_saved_is_put_beside_what_the_encoder_took() -> None:
    """0.7 s saved of 0.75 s that the encoder takes; loading took 3 ms of them."""
    found = (
        MEASURED.saved_seconds,
        MEASURED.speed_up,
        MEASURED.encoder_share_saved,
        MEASURED.load_share,
    )
    assert [0.7, 2.4, 0.9333, 0.004] == [round(figure or 0, 4) for figure in found]


def test_without_a_restart_nothing_was_saved() -> None:
    """And where vLLM does not tell the encoder's time there is no share of it."""
    assert {None} == {
        COLD_ONLY.warm_seconds,
        COLD_ONLY.saved_seconds,
        COLD_ONLY.speed_up,
        COLD_ONLY.encoder_share_saved,
        COLD_ONLY.load_share,
    }
    assert ("clip", "none", "1.00 s", *["-"] * 7, "equal") == cells(COLD_ONLY)


def test_an_answer_that_differs_is_shown() -> None:
    """A cache that changes answers is no cache."""
    wrong = Measured(case="c", connector="x", cold=(sample(1.0),), warm=(sample(1.0, text="b"),))
    assert (True, False) == (MEASURED.answers_equal, wrong.answers_equal)
    assert "DIFFERENT" == cells(wrong)[-1]
    assert ("1.20 s", "500.0 ms", "2.40 x", "700.0 ms", "750.0 ms", "93%", "3.0 ms", "0.40%") == (
        cells(MEASURED)[2:-1]
    )


def test_the_slowest_rank_counts() -> None:
    """Ranks encode together; a request waits for the last of them."""
    body = {
        "results": [
            {"r1": {"encoder_forward_secs": 0.25, "num_encoder_calls": 1}, "r2": {}},
            {"r1": {"encoder_forward_secs": 0.5}, "r2": {"encoder_forward_secs": 0.25}},
            None,
        ]
    }
    assert 0.75 == slowest_rank_seconds(body)
    assert 0.0 == slowest_rank_seconds({"results": [{}]})
    assert [None] * 4 == [
        slowest_rank_seconds({}),
        slowest_rank_seconds([]),
        slowest_rank_seconds({"results": []}),
        slowest_rank_seconds(None),
    ]


def test_the_plugin_is_found_as_an_installed_one(tmp_path: Path) -> None:
    """Its folder on PYTHONPATH is a distribution with an entry point."""
    import importlib.metadata

    folder = lay_out_plugin(PLUGIN, tmp_path / "plugin")
    lay_out_plugin(PLUGIN, folder)
    (found,) = importlib.metadata.distributions(path=[str(folder)])
    assert [("vllm.general_plugins", f"{PLUGIN.stem}:register")] == [
        (point.group, point.value) for point in found.entry_points
    ]
    assert (folder / PLUGIN.name).read_bytes() == PLUGIN.read_bytes()


def test_a_run_is_written_with_all_that_follows_and_drawn(tmp_path: Path) -> None:
    """JSON has samples and figures; the picture is one."""
    result = TtftResult(model="m", machine="here", measured=(MEASURED, COLD_ONLY))
    first, second = json.loads(result.to_json())["cases"]
    assert (0.9333, 3, None) == (
        round(first["encoder_share_saved"], 4),
        len(first["warm"]),
        second["speed_up"],
    )
    draw(tmp_path / "ttft.png", result)
    assert b"\x89PNG" == (tmp_path / "ttft.png").read_bytes()[:4]
