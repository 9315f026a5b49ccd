"""Each alert fires in the situation that it is for, alone, and none in a healthy one: promtool says so."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "eccache.rules.yaml"
MINUTES = 600
EVALUATED = "9h"
HEALTHY = {
    "promised": "0+30x600",
    "misses": "0+30x600",
    "puts": "0+30x600",
    "stored": "0+30x600",
    "evictions": "0+3x600",
}
"""Counters of a server with a hit ratio of one half and a store that is full."""

QUIET = (
    *("promised", "misses", "corrupt", "errors", "timeouts", "failed_puts", "broken_promises"),
    *("put_refused", "puts", "evictions", "stored", "unacknowledged"),
)
ONCE = "0x530 1x70"
"""A counter that went up by one, ten minutes before the evaluation."""

OF_SERVER = {"instance": "a:8000", "model_name": "m"}


@attrs.frozen
class Situation:
    """What a server's counters do, and the alert that must fire.

    Attributes:
        counters: in promtool's notation, one value a minute; those not named stand still.
        others: further series: name, labels, values.
        alert: that fires; None: none does.
        labels: of the alert.
    """

    counters: dict[str, str]
    others: tuple[tuple[str, dict[str, str], str], ...] = ()
    alert: str | None = None
    labels: dict[str, str] = attrs.field(factory=dict)


def buckets(below_a_second: int) -> tuple[tuple[str, dict[str, str], str], ...]:
    """The histogram of 60 look-ups a minute, so many of which take less than a second."""
    name = "lookup_seconds_bucket"
    return (
        (name, {"le": "1.0"}, f"0+{below_a_second}x{MINUTES}"),
        (name, {"le": "2.5"}, f"0+60x{MINUTES}"),
        (name, {"le": "+Inf"}, f"0+60x{MINUTES}"),
    )


SITUATIONS = {
    "a healthy server": Situation(HEALTHY, buckets(59)),
    "an idle server": Situation({}),
    "a broken promise": Situation(
        HEALTHY | {"broken_promises": ONCE},
        alert="EccacheBrokenPromise",
        labels=OF_SERVER | {"severity": "critical"},
    ),
    "no hits": Situation(
        HEALTHY | {"promised": "0x600"},
        alert="EccacheNoHits",
        labels={"model_name": "m", "severity": "info"},
    ),
    "most inputs bypass": Situation(
        HEALTHY,
        (("bypassed_total", {"reason": "client_id"}, "0+120x600"),),
        alert="EccacheMostlyBypassed",
        labels={"model_name": "m", "reason": "client_id", "severity": "info"},
    ),
    "a store that fails": Situation(
        HEALTHY | {"errors": "0+6x600"},
        alert="EccacheStoreFaults",
        labels=OF_SERVER | {"severity": "warning"},
    ),
    "a store that does not answer": Situation(
        HEALTHY | {"timeouts": "0+6x600"},
        alert="EccacheStoreFaults",
        labels=OF_SERVER | {"severity": "warning"},
    ),
    "a store that takes nothing": Situation(
        HEALTHY | {"failed_puts": "0+6x600"},
        alert="EccacheStoreFaults",
        labels=OF_SERVER | {"severity": "warning"},
    ),
    "damaged entries": Situation(
        HEALTHY | {"corrupt": "0x500 1 2 3 4 5 6x95"},
        alert="EccacheCorruption",
        labels=OF_SERVER | {"severity": "warning"},
    ),
    "one damaged entry": Situation(HEALTHY | {"corrupt": ONCE}),
    "an absorbed error": Situation(
        HEALTHY,
        (("faults_total", {"reason": "vllm.plan"}, ONCE),),
        alert="EccacheAbsorbedFault",
        labels=OF_SERVER | {"reason": "vllm.plan", "severity": "warning"},
    ),
    "slow look-ups": Situation(
        HEALTHY,
        buckets(10),
        alert="EccacheLookupsSlow",
        labels=OF_SERVER | {"severity": "warning"},
    ),
    "a disk that does not keep up": Situation(
        HEALTHY | {"put_refused": "0+6x600"},
        alert="EccachePutsRefused",
        labels=OF_SERVER | {"severity": "info"},
    ),
    "a cap below the working set": Situation(
        HEALTHY | {"evictions": "0+29x600"},
        alert="EccacheCapBelowWorkingSet",
        labels=OF_SERVER | {"severity": "info"},
    ),
    "a tier that does not answer": Situation(
        HEALTHY,
        (("tier_up", {"tier": "lmcache"}, "1x500 0x100"),),
        alert="EccacheTierDown",
        labels=OF_SERVER | {"tier": "lmcache", "severity": "warning"},
    ),
    "a tier that is back": Situation(
        HEALTHY, (("tier_up", {"tier": "lmcache"}, "1x500 0x30 1x70"),)
    ),
    "a rank that does not acknowledge": Situation(
        HEALTHY | {"unacknowledged": ONCE},
        alert="EccacheLoadsUnacknowledged",
        labels=OF_SERVER | {"severity": "warning"},
    ),
}


def alerts() -> dict[str, dict[str, Any]]:
    """Every alert of the file, by name."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"] if "alert" in rule}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def series(name: str, labels: dict[str, str], values: str) -> dict[str, str]:
    """One input series of a promtool test."""
    shown = ", ".join(
        f'{key}="{value}"' for key, value in (OF_SERVER | {"engine": "0"} | labels).items()
    )
    return {"series": f"vllm:eccache_{name}{{{shown}}}", "values": values}


def test_the_rules_are_well_formed() -> None:
    """Prometheus would load them."""
    result = promtool("check", "rules", str(RULES))
    assert 0 == result.returncode, result.stdout + result.stderr


def test_every_alert_has_a_situation_and_tells_what_to_do() -> None:
    """None is untested, and none leaves its reader alone."""
    found = alerts()
    assert set(found) == {s.alert for s in SITUATIONS.values() if s.alert is not None}
    for name, rule in found.items():
        assert {"summary", "description"} == set(rule["annotations"]), name
        assert {"severity"} == set(rule["labels"]), name


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_right_alert_fires_and_no_other(tmp_path: Path, name: str) -> None:
    """Nine hours into the situation, exactly this alert is firing."""
    situation = SITUATIONS[name]
    counters = dict.fromkeys(QUIET, f"0x{MINUTES}") | situation.counters
    inputs = [series(f"{counter}_total", {}, values) for counter, values in counters.items()]
    inputs += [series(*other) for other in situation.others]
    checks = []
    for alert, rule in alerts().items():
        annotations = {key: _filled(text, situation) for key, text in rule["annotations"].items()}
        firing = {"exp_labels": situation.labels, "exp_annotations": annotations}
        checks.append(
            {
                "eval_time": EVALUATED,
                "alertname": alert,
                "exp_alerts": [firing] if alert == situation.alert else [],
            }
        )
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "5m",
        "tests": [{"interval": "1m", "input_series": inputs, "alert_rule_test": checks}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps(document))
    result = promtool("test", "rules", str(file))
    assert 0 == result.returncode, result.stdout + result.stderr


def _filled(text: str, situation: Situation) -> str:
    """The annotation with the labels in their places."""
    for label, value in situation.labels.items():
        text = text.replace(f"{{{{ $labels.{label} }}}}", value)
    return text
