"""Every field of vLLM's configuration that was looked at: what it has to do with an encoder output.

A field that stands neither in `USED` nor in `IGNORED` is one that a newer vLLM added. A test fails then;
and until somebody has looked, a value other than the field's default keeps servers apart, so nothing is
silently left out.

"Rounding" stands for what lets one computation be carried out by other kernels or in another order:
outputs then differ in their last bits, as they do between two devices, and between two batches of one
server. Reuse across that is wanted: a producer and a consumer differ in it by design.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

_ROLE: Final = "differs between a producer and its consumer, which share"
_TEXT: Final = "concerns tokens, prompts, sampling or answers, not what the encoder makes"
_LANGUAGE_MODEL: Final = "concerns the language model behind the encoder"
_MEMORY: Final = "where things are kept, or for how long; not what is computed"
_ROUNDING: Final = "rounding"
_TRANSPORT: Final = "how processes talk to each other"
_LAYOUT: Final = "where ranks run; the encoder is whole on each, or split as `encoder_split` says"
_OBSERVED: Final = "logs, traces, profiles"
_IN_ID: Final = "decides what may be sent, not what comes of it"
_DERIVED: Final = (
    "vLLM works it out from the model's files and `hf_overrides`, which are ingredients"
)
_WATCHED: Final = (
    "whether weights may change while the server runs; see adapters.vllm.weights_watch"
)

USED: Final[Mapping[str, frozenset[str]]] = {
    "VllmConfig": frozenset(
        {"additional_config", "load_config", "lora_config", "model_config", "parallel_config"}
    ),
    "ModelConfig": frozenset(
        {
            "code_revision",
            "config_format",
            "dtype",
            "hf_config_path",
            "hf_overrides",
            "model",
            "model_class_overrides",
            "model_impl",
            "model_weights",
            "multimodal_config",
            "quantization",
            "quantization_config",
            "revision",
            "seed",
            "trust_remote_code",
        }
    ),
    "MultiModalConfig": frozenset(
        {
            "media_io_kwargs",
            "mm_device_do_normalize",
            "mm_encoder_attn_backend",
            "mm_encoder_attn_dtype",
            "mm_encoder_fp8_scale_path",
            "mm_encoder_tp_mode",
            "mm_hasher_algorithm",
            "mm_processor_kwargs",
            "video_pruning_method",
            "video_pruning_rate",
        }
    ),
    "LoadConfig": frozenset({"load_format", "model_loader_extra_config"}),
    "LoRAConfig": frozenset({"enable_tower_connector_lora", "lora_dtype", "target_modules"}),
    "ParallelConfig": frozenset({"tensor_parallel_size"}),
}
"""Fields that the fingerprint is made of, by class."""

IGNORED: Final[Mapping[str, Mapping[str, str]]] = {
    "VllmConfig": {
        "attention_config": "the language model's; what the encoder takes of it is " + _ROUNDING,
        "aux_output_config": _LANGUAGE_MODEL,
        "cache_config": _MEMORY + "; whether ids are hashes is checked by adapters.vllm.refusals",
        "compilation_config": _ROUNDING,
        "device_config": _ROUNDING,
        "diffusion_config": _LANGUAGE_MODEL,
        "ec_manager_config": _MEMORY,
        "ec_transfer_config": _ROLE,
        "engram_config": _LANGUAGE_MODEL,
        "instance_id": _TRANSPORT,
        "kernel_config": _ROUNDING,
        "kv_events_config": _OBSERVED,
        "kv_transfer_config": _ROLE,
        "logging_config": _OBSERVED,
        "mamba_config": _LANGUAGE_MODEL,
        "observability_config": _OBSERVED,
        "offload_config": _MEMORY,
        "optimization_level": _ROUNDING,
        "performance_mode": _ROUNDING,
        "profiler_config": _OBSERVED,
        "quant_config": _DERIVED,
        "reasoning_config": _TEXT,
        "scheduler_config": "which requests run together: " + _ROUNDING,
        "shutdown_timeout": _TRANSPORT,
        "speculative_config": _LANGUAGE_MODEL,
        "structured_outputs_config": _TEXT,
        "watermark_config": _TEXT,
        "weight_transfer_config": _WATCHED,
    },
    "ModelConfig": {
        "allow_deprecated_quantization": "permits a quantization, which is an ingredient itself",
        "allowed_local_media_path": _IN_ID,
        "allowed_media_domains": _IN_ID,
        "convert": _LANGUAGE_MODEL,
        "disable_cascade_attn": _LANGUAGE_MODEL,
        "disable_sliding_window": _LANGUAGE_MODEL,
        "enable_cumem_allocator": _MEMORY,
        "enable_nccl_comm_suspend": _MEMORY,
        "enable_prompt_embeds": "embeddings that a client sends are never stored",
        "enable_sleep_mode": _WATCHED,
        "enable_trace_replay": _TEXT,
        "enforce_eager": _ROUNDING,
        "generation_config": _TEXT,
        "hf_config": _DERIVED,
        "hf_text_config": _DERIVED,
        "hf_token": _IN_ID,
        "io_processor_plugin": _TEXT,
        "is_submodel_config": _DERIVED,
        "logits_processors": _TEXT,
        "logprobs_mode": _TEXT,
        "max_logprobs": _TEXT,
        "max_model_len": "how much fits; an input that is cut down for it has other content",
        "override_generation_config": _TEXT,
        "pooler_config": _TEXT,
        "renderer_num_workers": _TRANSPORT,
        "return_sampling_mask": _TEXT,
        "runner": _LANGUAGE_MODEL,
        "served_model_name": _TEXT,
        "skip_tokenizer_init": _TEXT,
        "sleep_mode_backend": _WATCHED,
        "sleep_mode_offload_cudagraph": _MEMORY,
        "sleep_preserve_parameter_names": _WATCHED,
        "spec_target_max_model_len": _LANGUAGE_MODEL,
        "tokenizer": _TEXT,
        "tokenizer_mode": _TEXT,
        "tokenizer_revision": _TEXT,
        "use_fp64_gumbel": _TEXT,
        "word_embeddings_untied_by_checkpoint": _LANGUAGE_MODEL,
    },
    "MultiModalConfig": {
        "allow_missing_mm_embeddings": _ROLE,
        "enable_mm_embeds": _ROLE,
        "interleave_mm_strings": _TEXT,
        "language_model_only": "then there is no encoder",
        "limit_per_prompt": _IN_ID,
        "mm_encoder_fp8_scale_save_margin": "what is written for another server to read",
        "mm_encoder_fp8_scale_save_path": "what is written for another server to read",
        "mm_encoder_only": _ROLE,
        "mm_ipc_gpu_memory_gb": _MEMORY,
        "mm_processor_cache_gb": _MEMORY + "; whether ids are hashes is checked at start",
        "mm_processor_cache_type": _MEMORY,
        "mm_shm_cache_max_object_size_mb": _MEMORY,
        "mm_tensor_ipc": _TRANSPORT,
        "skip_mm_profiling": _MEMORY,
    },
    "LoadConfig": {
        "device": _MEMORY,
        "download_dir": "where files come to lie, not which",
        "ignore_patterns": "what is not downloaded; what is there is told by its digest",
        "pt_load_map_location": _MEMORY,
        "safetensors_load_strategy": "how files are read",
        "safetensors_prefetch_block_size": "how files are read",
        "safetensors_prefetch_num_threads": "how files are read",
        "use_tqdm_on_load": _OBSERVED,
    },
    "LoRAConfig": {
        "default_mm_loras": "gives a request an adapter, whose content is part of the entry's name",
        "enable_mixed_moe_lora_format": _LANGUAGE_MODEL,
        "enable_moe_shared_loras": _LANGUAGE_MODEL,
        "fully_sharded_loras": _ROUNDING,
        "max_cpu_loras": _MEMORY,
        "max_lora_cls_labels": _LANGUAGE_MODEL,
        "max_lora_rank": _MEMORY,
        "max_loras": _MEMORY,
        "specialize_active_lora": _ROUNDING,
    },
    "ParallelConfig": {
        **dict.fromkeys(
            (
                "all2all_backend",
                "cp_kv_cache_interleave_size",
                "dbo_decode_token_threshold",
                "dbo_prefill_token_threshold",
                "dcp_comm_backend",
                "dcp_kv_cache_interleave_size",
                "dcp_q_replicate",
                "decode_context_parallel_size",
                "elastic_ep_max_dp_size",
                "enable_batch_sharded_sampling",
                "enable_dbo",
                "enable_elastic_ep",
                "enable_ep_weight_filter",
                "enable_eplb",
                "enable_expert_parallel",
                "enable_hc_sp",
                "eplb_config",
                "expert_placement_strategy",
                "is_moe_model",
                "ubatch_size",
                "_allow_auto_resolve_cp_interleave_size",
            ),
            _LANGUAGE_MODEL,
        ),
        **dict.fromkeys(
            (
                "assigned_physical_gpu_ids",
                "data_parallel_backend",
                "data_parallel_external_lb",
                "data_parallel_hybrid_lb",
                "data_parallel_index",
                "data_parallel_rank",
                "data_parallel_rank_local",
                "data_parallel_size",
                "data_parallel_size_local",
                "distributed_executor_backend",
                "enable_fault_tolerance",
                "fault_tolerance_config",
                "max_parallel_loading_workers",
                "nnodes",
                "node_rank",
                "numa_bind",
                "numa_bind_cpus",
                "numa_bind_nodes",
                "pipeline_parallel_size",
                "placement_group",
                "prefill_context_parallel_size",
                "rank",
                "ray_runtime_env",
                "ray_workers_use_nsight",
                "worker_cls",
                "world_size",
            ),
            _LAYOUT,
        ),
        **dict.fromkeys(
            (
                "cpu_distributed_timeout_seconds",
                "data_parallel_master_ip",
                "data_parallel_master_port",
                "data_parallel_rpc_port",
                "disable_custom_all_reduce",
                "disable_nccl_for_dp_synchronization",
                "distributed_timeout_seconds",
                "dp_sync_interval",
                "enable_shm_tensor_arena",
                "master_addr",
                "master_port",
                "_api_process_count",
                "_api_process_rank",
                "_coord_store_port",
                "_data_parallel_master_port_list",
            ),
            _TRANSPORT,
        ),
        "worker_extension_cls": _WATCHED,
    },
}
"""Fields that have no part in the fingerprint, by class, each with the reason."""


def unreviewed_fields(config: Any) -> Iterator[dataclasses.Field[Any]]:
    """Yield the fields of one of vLLM's configuration objects that nobody has looked at yet."""
    name = type(config).__name__
    known = USED.get(name, frozenset()) | IGNORED.get(name, {}).keys()
    for field in dataclasses.fields(config):
        if field.name not in known:
            yield field


def unreviewed_values(*configs: Any) -> str:
    """Return, as JSON, what is set in fields that nobody has looked at; empty where nothing is.

    A field that has its default is left out: a server that does not use what is new in its vLLM shares
    with those that don't know of it.
    """
    found = {
        f"{type(config).__name__}.{field.name}": value
        for config in configs
        for field in unreviewed_fields(config)
        if (value := getattr(config, field.name, None)) != _default(field)
    }
    return json.dumps(found, sort_keys=True, default=_kind) if found else ""


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        return None
    if hasattr(field.default, "get_default"):  # pydantic's description of a field
        return field.default.get_default(call_default_factory=True)
    return field.default


def _kind(value: Any) -> str:
    """Stand for a value that JSON has no form for: its text may differ from process to process."""
    return type(value).__qualname__
