"""Configurations of vLLM under which no promise could be kept, or no id trusted: refused at start.

Each refusal says what is wrong, why, and which flags to change. Everything that would merely cost hits
is not refused.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from eccache.domain.errors import ConfigError

OLDEST_VLLM: Final = "0.30"
_HOOKS: Final = (
    "ensure_cache_available",
    "take_unavailable_requests",
    "build_connector_worker_meta",
)
"""Hooks of vLLM's connector base that the protocol can't do without; all there since `OLDEST_VLLM`."""


def refuse_unusable(vllm_config: Any, connector_base: type) -> None:
    """Raise if the connector can't keep its promises under this configuration.

    Args:
        vllm_config: vLLM's whole configuration.
        connector_base: vLLM's connector base class, which tells by its hooks how old it is.

    Raises:
        ConfigError: says the cause and which flags to change.
    """
    _refuse_platform()
    _refuse_old_vllm(connector_base)
    _refuse_counter_ids(vllm_config)
    _refuse_scattered_ranks(vllm_config.parallel_config)
    _refuse_lost_acknowledgements(vllm_config)


def _refuse_platform() -> None:
    if sys.platform != "linux":
        msg = (
            f"eccache's vLLM connector runs on Linux only, not on {sys.platform}: promised copies are "
            "sealed memory files that workers reach through /proc."
        )
        raise ConfigError(msg, remedy="start vLLM without --ec-transfer-config.")


def _refuse_old_vllm(connector_base: type) -> None:
    missing = [hook for hook in _HOOKS if not hasattr(connector_base, hook)]
    if missing:
        msg = (
            f"this vLLM is too old for eccache: its connector base lacks {', '.join(missing)}, so a "
            "request could not wait for a look-up, or a load could not be acknowledged."
        )
        raise ConfigError(msg, remedy=f"install vLLM {OLDEST_VLLM} or later.")


def _refuse_counter_ids(vllm_config: Any) -> None:
    multimodal = getattr(vllm_config.model_config, "multimodal_config", None)
    if multimodal is None or multimodal.mm_processor_cache_gb != 0:
        return
    if not vllm_config.cache_config.enable_prefix_caching:
        msg = (
            "with --mm-processor-cache-gb 0 and --no-enable-prefix-caching vLLM numbers its inputs "
            "instead of hashing them, and the numbers start again with every start: another input's "
            "encoder output would be served."
        )
        raise ConfigError(
            msg,
            remedy="set --mm-processor-cache-gb above 0, or switch prefix caching on with "
            "--enable-prefix-caching; one of them is enough.",
        )


def _refuse_scattered_ranks(parallel: Any) -> None:
    hosts = int(parallel.nnodes_within_dp)
    if hosts > 1:
        msg = (
            f"the ranks of one engine are spread over {hosts} hosts (--nnodes {parallel.nnodes}, "
            f"--tensor-parallel-size {parallel.tensor_parallel_size}): a promised copy is in the memory "
            "of the scheduler's host, which workers on another host can't reach."
        )
        raise ConfigError(
            msg,
            remedy="keep each engine's ranks on one host (--nnodes 1 with a --tensor-parallel-size "
            "that fits), and replicate over hosts with --data-parallel-size.",
        )
    if parallel.distributed_executor_backend == "external_launcher":
        msg = (
            "with --distributed-executor-backend external_launcher every rank has a scheduler of its "
            "own, and all must decide alike; look-ups answer at different times on different ranks."
        )
        raise ConfigError(
            msg, remedy="use --distributed-executor-backend mp, or no --ec-transfer-config."
        )


def _refuse_lost_acknowledgements(vllm_config: Any) -> None:
    stages = vllm_config.parallel_config.pipeline_parallel_size
    if stages > 1 and not getattr(vllm_config, "use_v2_model_runner", False):
        msg = (
            f"with --pipeline-parallel-size {stages} vLLM's first model runner drops what the "
            "connector's workers report, so it would never be known when a promised copy may be freed."
        )
        raise ConfigError(
            msg,
            remedy="set --pipeline-parallel-size 1 (and raise --tensor-parallel-size), or use the "
            "second model runner with VLLM_USE_V2_MODEL_RUNNER=1.",
        )
