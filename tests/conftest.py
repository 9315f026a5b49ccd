"""What holds for every test: order, time limits, hypothesis profiles, and that none is skipped.

A kind of test is its folder under `tests/`. Quick kinds run first, so that a mistake shows early.
"""

import importlib
import os
import sys
from collections.abc import Generator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import hypothesis
import pytest

NIGHTLY = os.environ.get("ECCACHE_NIGHTLY") == "1"

# In the order in which they run. The limit holds for one test with its fixtures, a server's start
# included; a test that needs another one says so with `@pytest.mark.timeout`.
TIMEOUT_SECONDS_BY_KIND = {
    "unit": 60,
    "typing": 120,
    "golden": 60,
    "conformance": 60,
    "stateful": 120,
    "fault": 180,
    "integration": 180,
    "e2e": 600,
    "gpu": 300,
}
NIGHTLY_TIMEOUT_FACTOR = 20
MAY_SKIP = "gpu"  # the only hardware that a test may lack

# No deadlines: a shared machine stalls. Time limits are pytest-timeout's.
hypothesis.settings.register_profile("dev", max_examples=50, deadline=None)
hypothesis.settings.register_profile(
    "ci", max_examples=200, deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.register_profile(
    "nightly", max_examples=5_000, stateful_step_count=200, deadline=None, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


class CureTorchvisionFirst(MetaPathFinder):
    """Finds nothing; sees the first import that needs torchvision pass by, and cures it.

    Its wheel does not load beside a CPU build of torch. Finding out takes seconds, which most runs
    of the fast tests don't need to spend.
    """

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Leave the finding to the others."""
        if name in {"torchvision", "transformers", "vllm"}:
            sys.meta_path.remove(self)
            shim = importlib.import_module("eccache.app.demo.torch_shim")
            os.environ[shim.BROKEN_PACKAGES] = ",".join(shim.broken_packages())
            importlib.import_module("eccache.app.demo.torch_shim.sitecustomize")
        return None


sys.meta_path.insert(0, CureTorchvisionFirst())


def kind_of(path: Path) -> str:
    """The folder under `tests/` that *path* lies in, or an empty text outside of them."""
    here = Path(__file__).parent
    return path.relative_to(here).parts[0] if path.is_relative_to(here) else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put quick kinds first, give each test the time limit of its kind, leave the night's out."""
    order = list(TIMEOUT_SECONDS_BY_KIND)
    items.sort(key=lambda item: order.index(kind) if (kind := kind_of(item.path)) in order else -1)
    for item in items:
        seconds = TIMEOUT_SECONDS_BY_KIND.get(kind_of(item.path))
        if seconds is not None and item.get_closest_marker("timeout") is None:
            factor = NIGHTLY_TIMEOUT_FACTOR if NIGHTLY else 1
            item.add_marker(pytest.mark.timeout(seconds * factor))
    if not NIGHTLY:
        tonight = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=tonight)
        items[:] = [item for item in items if item not in tonight]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count a skipped test as failed: what isn't installed isn't tested, and nobody sees it."""
    report = yield
    _refuse_skip(report, item.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Count a module that skips itself (`importorskip`) as failed, for the same reason."""
    report = yield
    _refuse_skip(report, collector.path)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport, path: Path) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and kind_of(path) != MAY_SKIP:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{reason}. Only tests under tests/{MAY_SKIP} may be skipped: install what is missing "
            "(`make setup`), mark the test `nightly`, or remove it."
        )
