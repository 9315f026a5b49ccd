"""Every panel of the dashboard shows something, asked of a real Prometheus with the real metrics."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eccache.adapters.vllm.metrics import COUNTERS, GAUGES, HISTOGRAMS, PREFIX
from tests.integration.deploy.traffic import END, STEP_SECONDS, exported_names, openmetrics

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "eccache.json"
START_SECONDS = 60
_METRIC = re.compile(r"vllm:eccache_\w+")


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Every panel that shows something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def interpolated(expression: str) -> str:
    """The query as Grafana sends it with the variables' defaults."""
    for variable, value in (
        ("$__rate_interval", "4m"),
        ("$__range", "6h"),
        ("$encoder_seconds", "0.2"),
        ("$model_name", ".*"),
    ):
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


class Prometheus:
    """A Prometheus of the tests' own, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=1) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False

    def instant(self, expression: str) -> list[float]:
        """The values of *expression* at the end of the recorded time."""
        result = self._asked("query", query=expression, time=END)
        return [float(series["value"][1]) for series in result]

    def over_time(self, expression: str) -> list[list[float]]:
        """The values of each series of *expression* over the last hour."""
        result = self._asked(
            "query_range", query=expression, start=END - 3600, end=END, step=STEP_SECONDS
        )
        return [[float(value) for _, value in series["values"]] for series in result]

    def _asked(self, kind: str, **parameters: object) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode(parameters)
        url = f"{self._address}/api/v1/{kind}?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - loopback
            document = json.load(answer)
        assert "success" == document["status"], document
        result: list[dict[str, Any]] = document["data"]["result"]
        return result


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has six hours of a server's metrics."""
    home = tmp_path_factory.mktemp("prometheus")
    (home / "metrics.txt").write_text(openmetrics())
    (home / "prometheus.yaml").write_text("")
    backfill = ["promtool", "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run(
        [*backfill, str(home / "metrics.txt"), str(home / "data")], check=True, capture_output=True
    )
    port = free_port()
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={home / 'prometheus.yaml'}"),
                f"--storage.tsdb.path={home / 'data'}",
                *("--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"),
            ],
            stdout=log,
            stderr=log,
        )
    server = Prometheus(port)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.is_ready():
            assert process.poll() is None, (home / "log").read_text()
            assert time.monotonic() < deadline, (home / "log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait()


def test_only_exported_metrics_are_asked_for() -> None:
    """A renamed metric empties no panel and silences no alert unseen."""
    known = exported_names()
    for file in (DASHBOARD, DEPLOY / "prometheus" / "eccache.rules.yaml"):
        asked = set(_METRIC.findall(file.read_text(encoding="utf-8")))
        assert asked
        assert set() == asked - known, file.name


def test_what_an_operator_wants_to_know_is_on_the_dashboard() -> None:
    """Every exported metric has a place, but those that repeat another."""
    asked = set(_METRIC.findall(DASHBOARD.read_text(encoding="utf-8")))
    names = {f"{PREFIX}{counter.name}_total" for counter in COUNTERS}
    names |= {f"{PREFIX}{name}_bucket" for name, _ in HISTOGRAMS}
    names |= {f"{PREFIX}{gauge.name}" for gauge in GAUGES}
    repeated = {f"{PREFIX}loads_total", f"{PREFIX}puts_total"}
    assert set() == names - asked - repeated


def test_the_documented_metrics_are_those_exported() -> None:
    """Whoever writes a query finds every name, and no name that is not there."""
    page = DEPLOY.parent / "docs" / "monitoring.md"
    documented = set(
        re.findall(r"^\| `(vllm:eccache_\w+)` \|", page.read_text("utf-8"), re.MULTILINE)
    )
    exported = {f"{PREFIX}{counter.name}_total" for counter in COUNTERS}
    exported |= {f"{PREFIX}{name}" for name in (*dict(HISTOGRAMS), *(one.name for one in GAUGES))}
    assert exported == documented


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_every_panel_shows_something(prometheus: Prometheus, panel: dict[str, Any]) -> None:
    """Each query is valid, and gives numbers for a busy server."""
    for target in panel["targets"]:
        expression = interpolated(target["expr"])
        if target["instant"]:
            values = prometheus.instant(expression)
            assert 1 == len(values), expression
        else:
            values = [value for series in prometheus.over_time(expression) for value in series]
        assert values, expression
        assert not any(value != value for value in values), f"not a number: {expression}"  # noqa: PLR0124


def test_the_numbers_are_right(prometheus: Prometheus) -> None:
    """The panels that are looked at first say what the server did."""
    shown = {
        panel["title"]: prometheus.instant(interpolated(panel["targets"][0]["expr"]))[0]
        for panel in panels()
        if panel["targets"][0]["instant"]
    }
    totals = {
        name: prometheus.instant(f"{PREFIX}{name}_total")[0]
        for name in ("promised", "hits", "misses", "corrupt", "errors", "timeouts")
    }
    lookups = sum(totals.values()) - totals["hits"]
    assert totals["promised"] / lookups == pytest.approx(shown["Hit ratio"], abs=0.01)
    assert totals["hits"] == pytest.approx(shown["Encoder runs avoided"], rel=0.01)
    assert 1.0 == shown["Bytes against the cap"]
    assert 0.0 == shown["Broken promises"]
    saved = shown["Encoder time saved"]
    assert 0.15 * totals["hits"] < saved < 0.2 * totals["hits"]


def test_a_server_that_did_nothing_yet_breaks_no_panel(prometheus: Prometheus) -> None:
    """Ratios of nothing are empty, not infinite."""
    for panel in panels():
        for target in panel["targets"]:
            expression = interpolated(target["expr"]).replace('=~".*"', '="nobody"')
            assert all(value == 0 for value in prometheus.instant(expression)), expression


def test_the_dashboard_fits_grafanas_grid() -> None:
    """Panels have distinct ids, lie within 24 columns, do not overlap, and say what they show."""
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
