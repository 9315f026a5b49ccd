"""Both of the connector's sides as vLLM makes them, vLLM's real scheduler, and a stand-in for its model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock, patch

from bench.micro import ours
from bench.sizes import HIDDEN, EntrySize

PICTURE: Final = EntrySize("0.5 MB", 70, 1)
PROMPT_TOKENS: Final = PICTURE.rows + 8
BLOCK_TOKENS: Final = 16
BLOCKS: Final = 40_000
RUNNING: Final = 64


def digest(number: int) -> str:
    """Return an id that looks like vLLM's content hash."""
    return f"{number:064x}"


def make_config(model: Path, store: Path | None) -> Any:
    """Return vLLM's whole configuration of a server.

    Args:
        model: The model's folder.
        store: Where the connector stores; None: no connector.
    """
    from vllm.config import ECTransferConfig
    from vllm.engine.arg_utils import EngineArgs

    transfer = None
    if store is not None:
        transfer = ECTransferConfig(
            ec_connector="ECCacheConnector",
            ec_connector_module_path="eccache.app.vllm",
            ec_role="ec_both",
            ec_connector_extra_config={"local_disk": str(store), "min_free_space_ratio": 0.0},
        )
    return EngineArgs(
        model=str(model),
        dtype="bfloat16",
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=512,
        max_num_seqs=RUNNING,
        max_num_batched_tokens=8192,
        ec_transfer_config=transfer,
    ).create_engine_config()


class Connectors:
    """The connector of a scheduler and that of its one worker, in one process.

    Args:
        folder: For model and store.
    """

    def __init__(self, folder: Path) -> None:
        from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

        from eccache.app.demo.model import TINY, build_model
        from eccache.app.vllm import ECCacheConnector

        model = build_model(folder / "model", TINY).directory
        self.store = folder / "store"
        config = make_config(model, self.store)
        self.worker = ECCacheConnector(config, ECConnectorRole.WORKER)
        self.scheduler = ECCacheConnector(config, ECConnectorRole.SCHEDULER)
        self.config = make_config(model, None)
        self._accelerator: dict[str, Any] = {}  # one for good: a new one would mean other weights

    def work(self, step: Any, encoded: Iterable[str]) -> Any:
        """Do what a model runner does in *step*, and return what it reports.

        Args:
            step: The scheduler's output.
            encoded: Ids whose encoder output is to be stored; others are computed by nobody.
        """
        from vllm.v1.outputs import ECConnectorOutput

        metadata = step.ec_connector_metadata
        self.worker.bind_connector_metadata(metadata)
        self.worker.start_load_caches(self._accelerator)
        for load in metadata.plan.loads:  # it is of no further use, and would keep memory
            self._accelerator.pop(load.mm_hash, None)
        for identifier in encoded:
            self._accelerator[identifier] = PICTURE.tensor()
            self.worker.save_caches(self._accelerator, identifier)
            del self._accelerator[identifier]
        output = ECConnectorOutput()
        output.ec_connector_worker_meta = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        return None if output.is_empty() else output

    def clear_accelerator(self, numbers: Iterable[int]) -> None:
        """Tell the scheduler's side that these pictures' encoder outputs left the accelerator."""
        gone = [digest(number) for number in numbers]
        self.scheduler.build_connector_meta(SimpleNamespace(free_encoder_mm_hashes=gone))

    def close(self) -> None:
        """Shut both down, as vLLM does."""
        self.scheduler.shutdown()
        self.worker.shutdown()


def make_scheduler(config: Any, connector: Any) -> Any:
    """Return vLLM's scheduler with *connector*, or without where that is None."""
    import torch
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    config.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(
        block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=8, dtype=torch.bfloat16
    )
    # What vLLM works out by running the model's processor, for seconds.
    room = Mock(encoder_compute_budget=1 << 20, encoder_cache_size=1 << 20)
    with patch("vllm.v1.core.sched.scheduler.MultiModalBudget", return_value=room):
        scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=Mock(),
            block_size=BLOCK_TOKENS,
            log_stats=True,
        )
    if connector is not None:
        scheduler.ec_connector = connector
    return scheduler


def make_request(number: int, *, answer_tokens: int, name: str = "") -> Any:
    """Return a request with one picture at its start, whose id is `digest(number)`."""
    import torch
    from vllm.multimodal.inputs import (
        MultiModalBatchedField,
        MultiModalFeatureSpec,
        MultiModalFieldElem,
        MultiModalKwargsItem,
        PlaceholderRange,
    )
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    field = MultiModalBatchedField()
    pixels = torch.full((4, HIDDEN), number, dtype=torch.float32)
    data = MultiModalKwargsItem(
        {
            "pixel_values": MultiModalFieldElem(data=pixels, field=field),
            "image_grid_thw": MultiModalFieldElem(data=torch.tensor([1, 14, 20]), field=field),
        }
    )
    return Request(
        request_id=name or str(number),
        prompt_token_ids=[7] * PROMPT_TOKENS,
        sampling_params=SamplingParams(max_tokens=answer_tokens, ignore_eos=True),
        pooling_params=None,
        mm_features=[
            MultiModalFeatureSpec(
                data=data,
                modality="image",
                identifier=digest(number),
                mm_position=PlaceholderRange(offset=0, length=PICTURE.rows),
            )
        ],
    )


def run_step(
    scheduler: Any, work: Callable[[Any], Any], *, model_seconds: float
) -> tuple[float, int, bool]:
    """Let *scheduler* make one step.

    Args:
        scheduler: vLLM's.
        work: Is given the step, returns the worker's report.
        model_seconds: How long the model takes, as far as the scheduler's process can tell: it waits.

    Returns:
        The scheduler's seconds, the number of first tokens, and whether anything ran.
    """
    from vllm.v1.outputs import ModelRunnerOutput

    begin = time.perf_counter()
    step = scheduler.schedule()
    seconds = time.perf_counter() - begin
    report = work(step)
    time.sleep(model_seconds if step.total_num_scheduled_tokens else 1e-3)
    names = list(step.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    done = [request.num_computed_tokens >= request.num_tokens for request in requests]
    first_tokens = sum(
        complete and not request.num_output_tokens
        for request, complete in zip(requests, done, strict=True)
    )
    output = ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: number for number, name in enumerate(names)},
        sampled_token_ids=[[1] if complete else [] for complete in done],
        ec_connector_output=report,
    )
    begin = time.perf_counter()
    scheduler.update_from_output(step, output)
    return seconds + time.perf_counter() - begin, first_tokens, bool(names)


def store_pictures(connectors: Connectors, numbers: Sequence[int]) -> None:
    """Serve one request for each of *numbers*, and store what its encoder would have made.

    Raises:
        RuntimeError: Not all were stored.
    """
    wanted = [digest(number) for number in numbers]
    scheduler = make_scheduler(connectors.config, connectors.scheduler)
    for identifier in wanted:
        number = int(identifier, 16)
        scheduler.add_request(make_request(number, answer_tokens=1, name=f"store-{number}"))

    def work(step: Any) -> Any:
        indices = step.scheduled_encoder_inputs
        new = {request.req_id: request.mm_features for request in step.scheduled_new_reqs}
        return connectors.work(
            step, [new[name][index].identifier for name in indices for index in indices[name]]
        )

    while scheduler.has_unfinished_requests():
        run_step(scheduler, work, model_seconds=0.0)
    _wait_until_stored(connectors, len(wanted))
    connectors.clear_accelerator(numbers)


def _wait_until_stored(connectors: Connectors, count: int) -> None:
    end = time.monotonic() + 60
    while (stored := len(ours.entry_files(connectors.store))) < count:
        if time.monotonic() > end:
            raise RuntimeError(f"{stored} of {count} encoder outputs were stored")
        time.sleep(0.05)
