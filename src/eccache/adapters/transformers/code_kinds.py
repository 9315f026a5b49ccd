"""What is to be known of a function by where it comes from and what made it."""

from __future__ import annotations

import builtins
import functools
import importlib
import logging
import os
import sys
import types
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
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
PLAIN: Final = (type(None), type(...), bool, int, float, complex, str, bytes)
TORCH_VALUES: Final = (torch.dtype, torch.device, torch.layout, torch.memory_format)
WITHOUT_PART: Final = (logging.Logger, ContextVar)
"""What code may hold without its output depending on it; the framework's own variables are watched."""
WRAPPING: Final[Mapping[type, tuple[str, ...]]] = {
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools._lru_cache_wrapper: ("__wrapped__",),  # noqa: SLF001 - the type has no public name
    property: ("fget",),
    staticmethod: ("__func__",),
    types.MethodType: ("__self__", "__func__"),
}
"""What holds a function, and in which attributes."""
BUILT_IN: Final = (
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)
FUNCTIONS: Final = (types.FunctionType, types.MethodType, functools.partial)
UNTOLD_NAMES: Final = frozenset({"__import__", "environ", "getenv", "globals", "import_module"})
"""By these code gets at what none of its names tells."""
_UNTOLD: Final = (
    os.environ,
    os.getenv,
    importlib.import_module,
    builtins.globals,
    builtins.__import__,
)
NO_STATE: Final = frozenset(
    {*vars(torch.nn.Module()), "generation_config", "hf_device_map", "name_or_path"}
)
"""Attributes of modules that are looked at elsewhere, or say where a model came from and where it is."""
_HOOKED: Final = frozenset({"_hf_hook", "_is_hf_initialized", "_old_forward"})


def is_untold(value: object) -> bool:
    """Return whether *value* is a way to what can't be told, whatever name it has."""
    return isinstance(value, ContextVar) or any(value is one for one in _UNTOLD)


def is_state(module: torch.nn.Module, name: str) -> bool:
    """Return whether code may compute with what lies on *module* by this name."""
    return name not in NO_STATE | _HOOKED and not (
        name.startswith("_") and any(name in vars(base) for base in _framework(type(module)))
    )


def _framework(kind: type) -> Iterator[type]:
    """Yield bases by which the framework keeps plans and lists of names on every model."""
    for base in kind.__mro__:
        if root(base.__module__) == "transformers" and ".models." not in base.__module__:
            yield base


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
