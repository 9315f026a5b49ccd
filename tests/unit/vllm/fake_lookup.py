"""A driving port whose answers a test decides."""

from collections import Counter
from collections.abc import Sequence

from eccache.ports.lookup import Item, PermittedSave, PromisedLoad, StepPlan, WorkerReport
from eccache.testing.telemetry import RecordingTelemetry


class FakeLookup:
    """Implements `PromiseLookup`: items are stored, being looked up, or absent, as a test says.

    Attributes:
        stored: Ids that a look-up finds; looked up at once unless `slow`.
        slow: Ids whose look-up has not answered yet.
        ensured: Every call of `ensure`.
        finished_ids: Every request that was forgotten.
    """

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.slow: set[str] = set()
        self.ready: dict[str, set[str]] = {}
        self.ensured: list[tuple[str, tuple[Item, ...]]] = []
        self.finished_ids: list[str] = []
        self.reports: list[WorkerReport] = []
        self.closed = False
        self._loads: list[PromisedLoad] = []
        self._saves: list[PermittedSave] = []
        self._next_id = 0

    def ensure(self, request_id: str, items: Sequence[Item]) -> bool:
        """Answer True unless a look-up is slow."""
        self.ensured.append((request_id, tuple(items)))
        for item in items:
            if item.mm_hash in self.stored and item.mm_hash not in self.slow:
                self.ready.setdefault(item.mm_hash, set()).add(request_id)
        return not any(item.mm_hash in self.slow for item in items)

    def is_promised(self, mm_hash: str) -> bool:
        """Whether a copy is ready."""
        return mm_hash in self.ready

    def may_be_found(self, request_id: str, mm_hash: str) -> bool:
        """Whether it is stored, and was only given up."""
        return mm_hash in self.stored

    def allocated(self, request_id: str, item: Item, *, storable: bool) -> None:
        """Turn a copy into a load, or allow a save."""
        if self.ready.pop(item.mm_hash, None) is not None:
            self._next_id += 1
            self._loads.append(PromisedLoad(item.mm_hash, self._next_id, 1, 2, 4096))
        elif storable:
            content = None if item.content is None else item.content.digest()
            self._saves.append(PermittedSave(item.mm_hash, item.variant, content))

    def take_step(self) -> StepPlan:
        """Return and forget the plan."""
        plan = StepPlan(tuple(self._loads), tuple(self._saves))
        self._loads, self._saves = [], []
        return plan

    def report(self, report: WorkerReport) -> None:
        """Remember the report."""
        self.reports.append(report)

    def finished(self, request_id: str) -> None:
        """Drop the request's copies."""
        self.finished_ids.append(request_id)
        for key in list(self.ready):
            self.ready[key].discard(request_id)
            if not self.ready[key]:
                del self.ready[key]

    def close(self) -> None:
        """Count the calls."""
        self.closed = True


class DrainedRecording(RecordingTelemetry):
    """Recording telemetry whose counts can be taken out."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: Counter[str] = Counter()

    def take_report(self) -> WorkerReport | None:
        """Return what the test put there, once."""
        fresh = self.counters - self._taken
        self._taken = Counter(self.counters)
        return WorkerReport(counters=dict(fresh)) if fresh else None
