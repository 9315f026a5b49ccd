"""Which rank a worker is, and which ranks an engine has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import attrs


@attrs.frozen
class Rank:
    """A worker's place in its engine.

    Attributes:
        pipeline: pipeline stage; only stage 0 has the encoder.
        context: rank in prefill context parallelism.
        tensor: rank in tensor parallelism.
    """

    pipeline: int = 0
    context: int = 0
    tensor: int = 0

    @property
    def is_primary(self) -> bool:
        """True for the one rank that stores: an encoder output is the same on all ranks that have it."""
        return self == Rank()

    @classmethod
    def of_this_process(cls, parallel_config: Any) -> Self:
        """Return the rank that vLLM gave to this worker; its process groups exist, if it has any."""
        if parallel_config.world_size == 1:
            return cls()
        from vllm.distributed import parallel_state

        return cls(
            pipeline=parallel_state.get_pp_group().rank_in_group,
            context=parallel_state.get_pcp_group().rank_in_group,
            tensor=parallel_state.get_tp_group().rank_in_group,
        )


def all_ranks(parallel_config: Any) -> Iterator[Rank]:
    """Yield every rank of the engine."""
    for pipeline in range(parallel_config.pipeline_parallel_size):
        for context in range(_context_size(parallel_config)):
            for tensor in range(parallel_config.tensor_parallel_size):
                yield Rank(pipeline, context, tensor)


def acknowledging_ranks(parallel_config: Any) -> int:
    """Return how many ranks load, and acknowledge, each promised copy."""
    return int(parallel_config.tensor_parallel_size) * _context_size(parallel_config)


def _context_size(parallel_config: Any) -> int:
    return int(getattr(parallel_config, "prefill_context_parallel_size", 1))
