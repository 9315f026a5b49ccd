"""The worker's side, call by call."""

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from eccache.adapters.vllm.metadata import NO_WORK, ReportMetadata, StepMetadata, merged
from eccache.adapters.vllm.worker_side import WorkerRole, WorkerSide
from eccache.ports.lookup import PermittedSave, PromisedLoad, StepPlan, WorkerReport

LOAD = PromisedLoad("a", 1, 10, 20, 4096)
PRIMARY = WorkerRole(saves=True, loads=True, primary=True)
OTHER_RANK = WorkerRole(saves=True, loads=True, primary=False)


class FakeWorkerCache:
    """Implements `WorkerCache` over texts instead of tensors."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, str]] = []
        self.devices: list[str] = []
        self.next_report: WorkerReport | None = None
        self.closed = 0

    def load(self, loads: Iterable[PromisedLoad], device: str) -> dict[str, str]:
        """Return a text for each load."""
        self.devices.append(device)
        return {load.mm_hash: f"copy of {load.mm_hash}" for load in loads}

    def save(self, permitted: PermittedSave, tensor: str) -> None:
        """Remember what was saved."""
        self.saved.append((permitted.mm_hash, tensor))

    def take_report(self) -> WorkerReport | None:
        """Return what the test put there, once."""
        report, self.next_report = self.next_report, None
        return report

    def close(self) -> None:
        """Count the calls."""
        self.closed += 1


@pytest.fixture
def cache() -> FakeWorkerCache:
    """What the worker's side drives."""
    return FakeWorkerCache()


def side(cache: FakeWorkerCache, role: WorkerRole = PRIMARY) -> WorkerSide[str]:
    """A worker of the second accelerator."""
    return WorkerSide(cache, role, lambda: "cuda:1")


def test_promised_copies_are_put_where_the_runner_looks(cache: FakeWorkerCache) -> None:
    """A load fills the runner's encoder cache, on this rank's own device."""
    encoder_cache: dict[str, str] = {}
    side(cache).start_load_caches(StepMetadata(StepPlan(loads=(LOAD,))), encoder_cache)
    assert {"a": "copy of a"} == encoder_cache
    assert ["cuda:1"] == cache.devices


def test_a_promised_copy_replaces_what_is_there(cache: FakeWorkerCache) -> None:
    """What the runner has under that id was not verified for the rows that are needed now."""
    encoder_cache = {"a": "stale"}
    side(cache).start_load_caches(StepMetadata(StepPlan(loads=(LOAD,))), encoder_cache)
    assert {"a": "copy of a"} == encoder_cache


def test_only_what_the_scheduler_allowed_is_saved(cache: FakeWorkerCache) -> None:
    """The runner offers everything that it encoded; the allow-list decides."""
    worker = side(cache)
    metadata = StepMetadata(StepPlan(saves=(PermittedSave("a"),)))
    for mm_hash in ("a", "b"):
        worker.save_caches(metadata, {"a": "A", "b": "B"}, mm_hash)
    assert [("a", "A")] == cache.saved


@pytest.mark.parametrize(
    "role",
    [OTHER_RANK, WorkerRole(saves=False, loads=True, primary=True)],
    ids=["another rank", "consumer"],
)
def test_who_does_not_save(cache: FakeWorkerCache, role: WorkerRole) -> None:
    """One rank of a producer stores an entry once; a consumer stores nothing, though it is asked to."""
    side(cache, role).save_caches(
        StepMetadata(StepPlan(saves=(PermittedSave("a"),))), {"a": "A"}, "a"
    )
    assert [] == cache.saved


def test_a_producer_loads_nothing(cache: FakeWorkerCache) -> None:
    """Its scheduler promises nothing; should a plan say so all the same, it is not followed."""
    encoder_cache: dict[str, str] = {}
    role = WorkerRole(saves=True, loads=False, primary=True)
    side(cache, role).start_load_caches(StepMetadata(StepPlan(loads=(LOAD,))), encoder_cache)
    assert {} == encoder_cache


def test_without_a_steps_metadata_nothing_happens(cache: FakeWorkerCache) -> None:
    """The runner of an encoder-decoder model saves outside of a step."""
    encoder_cache = {"a": "A"}
    side(cache).save_caches(None, encoder_cache, "a")
    side(cache).start_load_caches(None, encoder_cache)
    assert ([], [], {"a": "A"}) == (cache.saved, cache.devices, encoder_cache)


def test_a_step_without_loads_does_not_touch_the_device(cache: FakeWorkerCache) -> None:
    """The second runner calls in every step, also in those that have no tokens."""
    side(cache).start_load_caches(NO_WORK, {})
    assert [] == cache.devices


def test_waiting_for_the_device_is_announced(cache: FakeWorkerCache) -> None:
    """A load happens inside the host's own mark for such code."""
    marks: list[str] = []

    @contextmanager
    def mark() -> Iterator[None]:
        marks.append("in")
        yield
        marks.append(f"out after {len(cache.devices)} load")

    worker = WorkerSide(cache, PRIMARY, lambda: "cpu", mark)
    worker.start_load_caches(StepMetadata(StepPlan(loads=(LOAD,))), {})
    assert ["in", "out after 1 load"] == marks


def test_nothing_done_is_nothing_reported(cache: FakeWorkerCache) -> None:
    """A step in which nothing happened adds nothing to the runner's output."""
    assert side(cache).build_connector_worker_meta() is None


def test_the_primary_rank_reports_everything(cache: FakeWorkerCache) -> None:
    """Acks, counters and observations of the primary rank reach the scheduler."""
    cache.next_report = WorkerReport({1: 1}, {"stored": 2}, {"load_seconds": [0.1]})
    metadata = side(cache).build_connector_worker_meta()
    assert metadata is not None
    assert WorkerReport({1: 1}, {"stored": 2}, {"load_seconds": [0.1]}) == metadata.report


def test_other_ranks_report_acks_and_their_own_faults(cache: FakeWorkerCache) -> None:
    """What every rank does alike is counted once; what went wrong on one rank is never lost."""
    cache.next_report = WorkerReport(
        {1: 1}, {"loads": 1, "faults:load": 1}, {"load_seconds": [1.0]}
    )
    metadata = side(cache, OTHER_RANK).build_connector_worker_meta()
    assert metadata is not None
    assert WorkerReport({1: 1}, {"faults:load": 1}) == metadata.report
    cache.next_report = WorkerReport(counters={"loads": 1})
    assert side(cache, OTHER_RANK).build_connector_worker_meta() is None


def test_reports_of_several_ranks_add_up() -> None:
    """Acks of one promise are summed over ranks; neither report is changed."""
    first = WorkerReport({1: 1}, {"stored": 1}, {"load_seconds": [0.1]})
    second = WorkerReport({1: 1, 2: 1}, {"errors": 1}, {"load_seconds": [0.2]})
    total = merged(first, second)
    assert (
        WorkerReport({1: 2, 2: 1}, {"stored": 1, "errors": 1}, {"load_seconds": [0.1, 0.2]})
        == total
    )
    assert [0.1] == first.observations["load_seconds"]


def test_envelopes_survive_vllms_serializer() -> None:
    """Both are pickled on their way between processes."""
    plan = StepPlan((LOAD,), (PermittedSave("a"),))
    report = WorkerReport({1: 1}, {"stored": 1}, {"load_seconds": [0.5]})
    assert plan == pickle.loads(pickle.dumps(StepMetadata(plan))).plan  # noqa: S301 - our own bytes
    assert report == pickle.loads(pickle.dumps(ReportMetadata(report))).report  # noqa: S301


def test_a_foreign_report_is_not_added() -> None:
    """Another connector's report can't be summed with ours."""
    mine = ReportMetadata(WorkerReport({1: 1}))
    assert mine is mine.aggregate(object())


def test_reports_that_vllm_drops_go_aside_and_are_kept_until_taken(cache: FakeWorkerCache) -> None:
    """Nothing is counted twice or lost while nobody takes reports; times are not kept."""
    sent: list[WorkerReport] = []
    open_now = [False, False, True, True]

    def send(report: WorkerReport) -> bool:
        taken = open_now.pop(0)
        if taken:
            sent.append(report)
        return taken

    worker = WorkerSide(cache, PRIMARY, lambda: "cpu", send_aside=send)
    for _ in range(4):
        cache.next_report = WorkerReport({}, {"stored": 1}, {"load_seconds": [0.1]})
        assert worker.build_connector_worker_meta() is None
    assert worker.build_connector_worker_meta() is None
    counters = [report.counters for report in sent]
    assert ([{"stored": 3}, {"stored": 1}], [{}, {}]) == (counters, [r.observations for r in sent])


def test_closing_closes_the_cache(cache: FakeWorkerCache) -> None:
    """The host's shutdown reaches the writer."""
    side(cache).close()
    assert 1 == cache.closed
