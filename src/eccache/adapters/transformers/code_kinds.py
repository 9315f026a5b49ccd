"""What is to be known of a function by where it comes from and what made it."""

from __future__ import annotations

import sys
import types
from typing import Final

import torch

KNOWN_BY_NAME: Final = sys.stdlib_module_names | {
    *("numpy", "torch", "triton"),
    # What the framework itself requires, and computes no output with.
    *("filelock", "huggingface_hub", "packaging", "psutil", "regex", "requests", "safetensors"),
    *("tokenizers", "tqdm", "yaml"),
}
"""Packages whose functions are known by name."""
_RELEASED: Final = frozenset(
    {
        *("accelerate", "einops", "flash_attn", "flash_attn_interface", "kernels", "liger_kernel"),
        *("sageattention", "timm", "torchaudio", "torchvision", "transformers", "xformers"),
    }
)
"""Packages whose code is digested, but what else their modules hold is as it was released."""
_MOVERS: Final = frozenset({"AlignDevicesHook", "CpuOffload"})


def is_code(value: object) -> bool:
    """Return whether *value* is something that code on a module may call, and no module itself."""
    return callable(value) and not isinstance(value, (torch.nn.Module, torch.Tensor))


def is_own(module: torch.nn.Module, name: str, value: object) -> bool:
    """Return whether *value* is what the module's class has by that name."""
    return (
        isinstance(value, types.MethodType)
        and value.__self__ is module
        and value.__func__ is getattr(type(module), name, None)
    )


def is_compiled(function: types.FunctionType) -> bool:
    """Return whether *function* is what torch.compile() made."""
    marks = vars(function)
    return "_torchdynamo_orig_callable" in marks and not marks.get("_torchdynamo_disable")


def only_moves(hook: object) -> bool:
    """Return whether *hook* is one of accelerate's that only move tensors between devices."""
    kind = type(hook)
    if kind.__module__ != "accelerate.hooks":
        return False
    if kind.__name__ == "SequentialHook":
        return all(only_moves(one) for one in vars(hook)["hooks"])
    return kind.__name__ in _MOVERS


def is_unreleased(home: str) -> bool:
    """Return whether a module of this name may have other content than its release says."""
    return root(home) not in KNOWN_BY_NAME | _RELEASED


def root(home: str) -> str:
    """Return the package that a module is in."""
    return home.partition(".")[0]
