"""The connector that vLLM makes.

vLLM makes one connector in the engine's process, beside the scheduler, and one in each worker; in a
single-process engine both live in one process. It imports this module in its API process too, where it
calls nothing but the two class methods. So importing does no work, and nothing is shared between
connectors.

No exception leaves a hook: a fault becomes a miss, counted and logged. What a hook returns then is what
costs nothing but an encoder run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorBase,
    ECConnectorMetadata,
    ECConnectorRole,
    ECConnectorWorkerMetadata,
)

from eccache.adapters.vllm.metadata import NO_WORK, StepMetadata
from eccache.app.guard import absorb, guarded

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.ec_transfer.ec_connector.metrics import (
        ECConnectorPromMetrics,
        ECConnectorStats,
    )

    from eccache.adapters.vllm.scheduler_side import SchedulerSide
    from eccache.adapters.vllm.worker_side import WorkerSide

R = TypeVar("R")


class ECCacheConnector(ECConnectorBase):
    """Loads encoder outputs from the cache instead of computing them, and stores those computed.

    Raises:
        ConfigError: the configuration is wrong, or one under which promises can't be kept; says what
            to change.
    """

    def __init__(self, vllm_config: VllmConfig, role: ECConnectorRole) -> None:
        super().__init__(vllm_config, role)
        from eccache.app.vllm import wiring

        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide[torch.Tensor] | None = None
        self._describe: Callable[[Any], dict[str, Any] | None] = lambda _request: None
        self._confirm: Callable[[], None] = lambda: None
        if role is ECConnectorRole.SCHEDULER:
            scheduler = wiring.scheduler(vllm_config)
            self._scheduler, self._describe = scheduler.side, scheduler.describe
            self._telemetry, self._close = scheduler.telemetry, scheduler.close
        else:
            worker = wiring.worker(vllm_config)
            self._worker, self._confirm = worker.side, worker.confirm
            self._telemetry, self._close = worker.telemetry, worker.close

    def _guarded(self, hook: str, function: Callable[[], R], otherwise: R) -> R:
        return guarded(self._telemetry, f"vllm.{hook}", function, otherwise)

    def shutdown(self) -> None:
        """Wait for accepted saves up to a deadline, and close every copy."""
        self._guarded("shutdown", self._close, None)

    # --- the worker's side --------------------------------------------------------------------------

    def _bound(self) -> StepMetadata | None:
        bound = self._connector_metadata
        return bound if isinstance(bound, StepMetadata) else None

    def start_worker_services(self) -> None:
        """Require that the weights, loaded by now, are those that entries will be named after.

        Raises:
            ConfigError: their files changed meanwhile.
        """
        self._confirm()

    def start_save_caches(self, **arguments: Any) -> None:
        """Watch over the encoder cache of a worker that saves."""
        encoder_cache = arguments.get("encoder_cache")
        if (worker := self._worker) is not None and encoder_cache is not None:
            self._guarded("start", lambda: worker.start_step(encoder_cache), None)

    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **_: Any) -> None:
        """Put the promised copies of this step into *encoder_cache*."""
        if (worker := self._worker) is not None:
            self._guarded("start", lambda: worker.start_step(encoder_cache), None)
            self._guarded(
                "load", lambda: worker.start_load_caches(self._bound(), encoder_cache), None
            )

    def save_caches(self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **_: Any) -> None:
        """Store what the encoder just made, in the background."""
        if (worker := self._worker) is not None:
            self._guarded(
                "save", lambda: worker.save_caches(self._bound(), encoder_cache, mm_hash), None
            )

    def build_connector_worker_meta(self) -> ECConnectorWorkerMetadata | None:
        """Return what this rank did since the last step."""
        if (worker := self._worker) is None:
            return None
        return self._guarded("report", worker.build_connector_worker_meta, None)

    # --- the scheduler's side -----------------------------------------------------------------------

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        """Return False while entries that *request* needs are being fetched."""
        if (side := self._scheduler) is None:
            return True
        try:  # as in `_guarded`, without its two calls: this runs in every step for every request
            return side.ensure_cache_available(request, num_computed_tokens)
        except Exception as fault:  # noqa: BLE001 - the guard itself
            absorb(self._telemetry, "vllm.ensure", fault)
            return True

    def has_cache_item(self, identifier: str) -> bool:
        """Return whether a verified copy is at hand; True is a promise."""
        if (side := self._scheduler) is None:
            return False
        return self._guarded("has", lambda: side.has_cache_item(identifier), otherwise=False)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        """Turn a promise into a load, or let what will be encoded be saved."""
        if (side := self._scheduler) is not None:
            self._guarded("allocated", lambda: side.update_state_after_alloc(request, index), None)

    def build_connector_meta(self, scheduler_output: Any) -> ECConnectorMetadata:
        """Return what the workers are to do in this step."""
        if (side := self._scheduler) is None:
            return NO_WORK
        return self._guarded("plan", lambda: side.build_connector_meta(scheduler_output), NO_WORK)

    def update_connector_output(self, connector_output: Any) -> None:
        """Take in what the workers did."""
        if (side := self._scheduler) is not None:
            self._guarded("output", lambda: side.update_connector_output(connector_output), None)

    def take_unavailable_requests(self) -> set[str]:
        """Return requests that carry no media and whose encoder output nothing can supply."""
        if (side := self._scheduler) is None:
            return set()
        return self._guarded("unavailable", side.take_unavailable_requests, set())

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        """Forget *request*, and describe its inputs to a consumer if this server stores them."""
        if (side := self._scheduler) is None:
            return False, None
        described = self._guarded("describe", lambda: self._describe(request), None)
        self._guarded("finished", lambda: side.request_finished(request), None)
        return False, described

    def get_ec_connector_stats(self) -> ECConnectorStats | None:
        """Return what was counted since the last step, on the scheduler's side alone.

        One of vLLM's two model runners never asks its workers; their counts travel with their reports.
        """
        if (side := self._scheduler) is None:
            return None
        return self._guarded("stats", side.take_stats, None)

    # --- the front end ------------------------------------------------------------------------------

    @classmethod
    def build_ec_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> ECConnectorStats | None:
        """Return the statistics that *data* was taken from."""
        from eccache.adapters.vllm.metrics import CacheTransferStats

        return CacheTransferStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> ECConnectorPromMetrics | None:
        """Register the series `vllm:eccache_*`."""
        from eccache.adapters.vllm.metrics import CachePromMetrics

        return CachePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
