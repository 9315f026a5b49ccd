"""Both sides behind vLLM's hooks, without the guard: a fault fails the test instead of becoming a miss."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole

from eccache.adapters.vllm.admission import Admission, Knowledge
from eccache.adapters.vllm.scheduler_side import SchedulerRole, SchedulerSide
from eccache.adapters.vllm.worker_side import WorkerRole, WorkerSide
from eccache.domain.policy import SharingPolicy
from eccache.ports.lookup import Item, PermittedSave, PromisedLoad, StepPlan, WorkerReport
from tests.unit.vllm.fake_lookup import DrainedRecording
from tests.unit.vllm.runners import encoder_output


class World:
    """What is stored, which look-ups are slow, and what became of every copy.

    A copy that is ready belongs to requests; one that was given to the workers is open until every rank
    has acknowledged it.

    Attributes:
        ranks: Ranks that acknowledge.
        stored: Rows by id.
        slow: Ids whose look-ups do not answer yet.
        open_copies: Copies on their way to the workers: promise id to outstanding acks.
    """

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.stored: dict[str, int] = {}
        self.slow: set[str] = set()
        self.ready: dict[str, tuple[int, set[str]]] = {}
        self.open_copies: dict[int, tuple[str, int, int]] = {}
        self._plan: tuple[list[PromisedLoad], list[PermittedSave]] = ([], [])
        self._promises = 0

    # The scheduler's port.

    def ensure(self, request_id: str, items: Sequence[Item]) -> bool:
        """Find what is stored with as many rows as are needed, unless it is slow."""
        waiting = False
        for item in items:
            if item.mm_hash in self.slow:
                waiting = True
            elif self.stored.get(item.mm_hash) == item.num_embeds:
                rows, owners = self.ready.setdefault(item.mm_hash, (item.num_embeds, set()))
                assert rows == item.num_embeds, "one id, two sizes"
                owners.add(request_id)
        return not waiting

    def is_promised(self, mm_hash: str) -> bool:
        """Whether a copy is ready."""
        return mm_hash in self.ready

    def may_be_found(self, request_id: str, mm_hash: str) -> bool:
        """Every look-up in this world comes to an end."""
        return False

    def allocated(self, request_id: str, item: Item, *, storable: bool) -> None:
        """Turn a copy into a load, or allow a save."""
        loads, saves = self._plan
        found = self.ready.pop(item.mm_hash, None)
        if found is not None:
            self._promises += 1
            self.open_copies[self._promises] = (item.mm_hash, found[0], self.ranks)
            loads.append(PromisedLoad(item.mm_hash, self._promises, 1, 2, 4096))
        elif storable:
            saves.append(PermittedSave(item.mm_hash, item.variant))

    def take_step(self) -> StepPlan:
        """Return and forget the plan."""
        (loads, saves), self._plan = self._plan, ([], [])
        return StepPlan(tuple(loads), tuple(saves))

    def report(self, report: WorkerReport) -> None:
        """Close what all ranks have acknowledged."""
        for promise, acks in report.acks.items():
            mm_hash, rows, left = self.open_copies.pop(promise)
            assert acks <= left
            if acks < left:
                self.open_copies[promise] = (mm_hash, rows, left - acks)

    def finished(self, request_id: str) -> None:
        """Close copies that nobody owns any more."""
        for mm_hash, (_, owners) in list(self.ready.items()):
            owners.discard(request_id)
            if not owners:
                del self.ready[mm_hash]

    def close(self) -> None:
        """Close everything."""
        self.ready.clear()


class RankCache:
    """A worker's port to a `World`: loads exactly the copies that are open, saves into it at once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._acks: Counter[int] = Counter()
        self._counters: Counter[str] = Counter()

    def load(self, loads: Iterable[PromisedLoad], device: str) -> dict[str, torch.Tensor]:
        """Build each copy; one that is closed already is a broken promise."""
        built = {}
        for load in loads:
            mm_hash, rows, _ = self._world.open_copies[load.promise_id]
            built[mm_hash] = encoder_output(mm_hash, rows)
            self._acks[load.promise_id] += 1
            self._counters["loads"] += 1
        return built

    def save(self, permitted: PermittedSave, tensor: torch.Tensor) -> None:
        """Store rows."""
        mm_hash = permitted.mm_hash
        assert torch.equal(encoder_output(mm_hash, tensor.shape[0]), tensor)
        self._world.stored[mm_hash] = tensor.shape[0]
        self._counters["stored"] += 1

    def take_report(self) -> WorkerReport | None:
        """Return acks and counts since the last call."""
        if not self._counters:
            return None
        report = WorkerReport(dict(self._acks), dict(self._counters))
        self._acks.clear()
        self._counters.clear()
        return report

    def close(self) -> None:
        """Nothing is pending."""


class UnguardedConnector(ECConnectorBase):
    """The hooks, passed straight to one of the two sides."""

    def __init__(self, config: Any, role: ECConnectorRole, side: Any) -> None:
        super().__init__(config, role)
        self.side = side

    @classmethod
    def scheduler(
        cls, config: Any, world: World, policy: SharingPolicy | None = None
    ) -> "UnguardedConnector":
        """The scheduler's connector."""
        transfer = config.ec_transfer_config
        role = SchedulerRole(saves=transfer.is_ec_producer, loads=transfer.is_ec_consumer)
        admission = Admission(
            policy or SharingPolicy(), Knowledge(), lambda modality: {f"{modality}_grid_thw"}
        )
        side = SchedulerSide(world, admission, role, DrainedRecording())
        return cls(config, ECConnectorRole.SCHEDULER, side)

    @classmethod
    def worker(cls, config: Any, world: World, *, primary: bool = True) -> "UnguardedConnector":
        """A rank's connector."""
        transfer = config.ec_transfer_config
        role = WorkerRole(
            saves=transfer.is_ec_producer, loads=transfer.is_ec_consumer, primary=primary
        )
        side = WorkerSide(RankCache(world), role, lambda: "cpu")
        return cls(config, ECConnectorRole.WORKER, side)

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        """Pass on."""
        return bool(self.side.ensure_cache_available(request, num_computed_tokens))

    def has_cache_item(self, identifier: str) -> bool:
        """Pass on."""
        return bool(self.side.has_cache_item(identifier))

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """Pass on."""
        self.side.update_state_after_alloc(request, index)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Pass on."""
        return self.side.build_connector_meta(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        """Pass on."""
        self.side.update_connector_output(connector_output)

    def take_unavailable_requests(self) -> set[str]:
        """Pass on."""
        return set(self.side.take_unavailable_requests())

    def request_finished(self, request: Any) -> tuple[bool, None]:
        """Pass on."""
        self.side.request_finished(request)
        return False, None

    def start_load_caches(self, encoder_cache: Any, **_: Any) -> None:
        """Pass on with the bound metadata."""
        self.side.start_load_caches(self._connector_metadata, encoder_cache)

    def save_caches(self, encoder_cache: Any, mm_hash: str, **_: Any) -> None:
        """Pass on with the bound metadata."""
        self.side.save_caches(self._connector_metadata, encoder_cache, mm_hash)

    def build_connector_worker_meta(self) -> Any:
        """Pass on."""
        return self.side.build_connector_worker_meta()
