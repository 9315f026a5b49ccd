"""vLLM's real scheduler with a stand-in for its model runner: an engine without a model."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock, patch

import torch
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from tests.unit.vllm.runners import FirstRunner

BLOCK_TOKENS = 16
RUN_SECONDS = 30.0
IDLE_SECONDS = 0.001
"""What vLLM's loop waits in a step without tokens, so that other threads come to their turn."""


class HungError(AssertionError):
    """Requests did not come to an end."""


class Engine:
    """Steps the scheduler and its runners, as vLLM's engine core does.

    Args:
        config: vLLM's configuration. Its connector is what *connector* makes.
        connector: The scheduler's connector; None for an engine without one.
        runners: One for each rank; the first one's output counts, reports are summed.
        blocks: KV cache blocks; few of them lead to preemption.
        encoder_cache_size: Rows of encoder output that fit on the accelerator.
        budget_tokens: Tokens of a step; few of them chunk a prompt.
    """

    def __init__(
        self,
        config: Any,
        connector: Any,
        runners: Sequence[FirstRunner],
        *,
        blocks: int = 1_000,
        encoder_cache_size: int = 1_000,
        budget_tokens: int = 512,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        config.cache_config.num_gpu_blocks = blocks
        spec = FullAttentionSpec(
            block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=8, dtype=torch.bfloat16
        )
        transfer, config.ec_transfer_config = config.ec_transfer_config, None
        sizes = Mock(  # what vLLM works out by running the model's processor, for seconds
            encoder_compute_budget=encoder_cache_size, encoder_cache_size=encoder_cache_size
        )
        try:
            with patch("vllm.v1.core.sched.scheduler.MultiModalBudget", return_value=sizes):
                self.scheduler = Scheduler(
                    vllm_config=config,
                    kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
                    structured_output_manager=Mock(),
                    block_size=BLOCK_TOKENS,
                    log_stats=True,
                )
        finally:
            config.ec_transfer_config = transfer
        self.scheduler.ec_connector = connector
        self.scheduler.max_num_scheduled_tokens = budget_tokens
        init_none_hash(sha256)
        self.block_hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self.runners = runners
        for runner in runners:
            runner.whole_features = lambda name: list(self.scheduler.requests[name].mm_features)
        self.requests: list[Request] = []
        self.deferred_steps = 0
        self._on_step = on_step

    def add(self, request: Request) -> Request:
        """Let a request arrive."""
        self.scheduler.add_request(request)
        self.requests.append(request)
        return request

    def abort(self, request_id: str) -> None:
        """Let a client go away."""
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        """One step of the engine."""
        self._on_step()
        step = self.scheduler.schedule()
        outputs = [runner.execute(step) for runner in self.runners]
        output = outputs[0]
        for row, request_id in enumerate(output.req_ids):
            request = self.scheduler.requests[request_id]
            if request.num_computed_tokens >= request.num_tokens:
                output.sampled_token_ids[row] = [1]
        self._sum_reports(outputs)
        self.deferred_steps += not step.total_num_scheduled_tokens
        self.scheduler.update_from_output(step, output)

    def run(self) -> None:
        """Step until every request has come to an end."""
        give_up_at = time.monotonic() + RUN_SECONDS
        while time.monotonic() < give_up_at:
            deferred_steps = self.deferred_steps
            if not self.scheduler.has_unfinished_requests():
                self.step()  # tells the runners what finished
                return
            self.step()
            if self.deferred_steps > deferred_steps:
                threading.Event().wait(IDLE_SECONDS)
        raise HungError(f"{len(self.scheduler.requests)} requests after {RUN_SECONDS:g} s")

    def serve(self, *requests: Request) -> None:
        """Let requests arrive together, and run until they have come to an end."""
        for request in requests:
            self.add(request)
        self.run()

    def _sum_reports(self, outputs: Sequence[ModelRunnerOutput]) -> None:
        """Join the ranks' reports as vLLM's aggregator does."""
        from vllm.distributed.ec_transfer.ec_connector.utils import ECOutputAggregator

        ECOutputAggregator().aggregate(list(outputs))
