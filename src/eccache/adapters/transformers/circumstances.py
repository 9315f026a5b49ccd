"""Switches of torch that change what an encoder computes, without a trace in model or input."""

from __future__ import annotations

import torch
from torch.backends import cuda, cudnn
from torch.nn.modules import module as torch_module

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.torch_functions import TorchFunctions

try:
    from transformers.utils.output_capturing import _active_collector
except ImportError:  # an earlier release, without a collector that an outer call could have started
    _active_collector = None

_functions = TorchFunctions()


def require_plain_execution() -> None:
    """Raise if code runs in a way in which a stored output can't stand in for it.

    Raises:
        UncacheableError: it is traced, watched by global hooks, its intermediate values are collected, or
            functions of torch were replaced.
    """
    if torch._C._is_tracing():  # noqa: SLF001 - what torch.jit.is_tracing() asks, but with a type
        raise UncacheableError(Bypass.COMPILED, "the call is being traced")
    if torch_module._has_any_global_hook():  # noqa: SLF001 - there is no public way to ask
        raise UncacheableError(Bypass.HOOKS, "torch has global module hooks")
    if _active_collector is not None and _active_collector.get():
        raise UncacheableError(
            Bypass.INTERMEDIATES, "an outer call collects hidden states or attentions"
        )
    foreign = _functions.foreign()
    if foreign is not None:
        raise UncacheableError(Bypass.PATCHED, f"{foreign} was replaced")


def circumstances(device: torch.device) -> dict[str, str]:
    """Return every switch that counts on *device*, as text."""
    autocast = torch.is_autocast_enabled(device.type)
    attention = (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )
    found = {
        "autocast": str(torch.get_autocast_dtype(device.type)) if autocast else "off",
        "float32 matmul": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "attention": str(attention),
    }
    if device.type == "cuda":
        found["tf32"] = f"{cuda.matmul.allow_tf32} {cudnn.allow_tf32}"
        found["reductions"] = (
            f"{cuda.matmul.allow_fp16_reduced_precision_reduction} "
            f"{cuda.matmul.allow_bf16_reduced_precision_reduction}"
        )
        found["cudnn"] = f"{cudnn.enabled} {cudnn.benchmark} {cudnn.deterministic}"
    return found
