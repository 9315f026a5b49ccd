"""The scope of an encoder: the modules whose weights and settings its output may depend on.

That is the module which has the method, with everything below it except the text side: a language
model's weights are most of the bytes, need no digest, and may well be trained while the encoder is
frozen. Which weights a method really uses can't be read off a model, so the assumption is watched
(`ScopeWatch`) the first time that the encoder runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs
import torch
from torch.overrides import TorchFunctionMode

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.code_kinds import NO_STATE
from eccache.adapters.transformers.settings import plain
from eccache.adapters.transformers.weights import TensorMark, is_readable, tensor_mark

TEXT_SIDE: Final = frozenset(
    {"language_model", "lm_head", "text_decoder", "text_model", "text_projection"}
)
"""Children of the owner that take no part in encoding an image, a video or an audio clip."""

_PLAIN = (bool, int, float, str)
_COLLECTIONS = frozenset({dict, list, tuple})

ModuleSettings: TypeAlias = tuple[str, type, tuple[tuple[str, object], ...]]
"""A module's name, its class, and its public attributes that are plain data."""


@attrs.frozen(kw_only=True)
class Scope:
    """Modules under one owner.

    Attributes:
        owner: has the method.
        whole: the owner is an encoder itself, so nothing is left out, and its own mode counts.
    """

    owner: torch.nn.Module
    whole: bool

    def modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield each module once, by its name."""
        seen: set[int] = set()
        waiting = [("", self.owner)]
        while waiting:
            name, module = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            for child_name, child in module._modules.items():  # noqa: SLF001 - named_children() drops shared ones
                left_out = not self.whole and module is self.owner and child_name in TEXT_SIDE
                if child is not None and not left_out:
                    waiting.append((f"{name}.{child_name}", child))


@attrs.frozen
class Observation:
    """What a scope is like at one moment. Made anew for every call, in a millisecond or two.

    Attributes:
        modules: settings of each module.
        tensors: parameters and buffers by name.
        marks: of each tensor.
        code: identity of each module, and of what lies on it besides its settings.
    """

    modules: tuple[ModuleSettings, ...]
    tensors: tuple[tuple[str, torch.Tensor], ...]
    marks: tuple[TensorMark, ...]
    code: tuple[object, ...]

    @property
    def device(self) -> torch.device:
        """The one device that all tensors are on.

        Raises:
            UncacheableError: there is none, or more than one.
        """
        devices = {tensor.device for _, tensor in self.tensors}
        if len(devices) != 1:
            raise UncacheableError(
                Bypass.WEIGHTS, f"the encoder's weights are on {len(devices)} devices"
            )
        return devices.pop()

    def same_as(self, other: Observation) -> bool:
        """Return whether nothing was changed between the two as far as torch and Python can tell."""
        return self.marks == other.marks and self.modules == other.modules


def observe(scope: Scope) -> Observation:
    """Look at every module of *scope*.

    Raises:
        UncacheableError: the state of one is such that no output may be served or stored.
    """
    modules: list[ModuleSettings] = []
    tensors: list[tuple[str, torch.Tensor]] = []
    marks: list[TensorMark] = []
    code: list[object] = []
    gradients = torch.is_grad_enabled()
    for name, module in scope.modules():
        _require_usable(module, mode_counts=scope.whole or module is not scope.owner)
        settings, others = _attributes(module)
        modules.append((name, type(module), settings))
        code += (id(module), *others)
        for group in (module._parameters, module._buffers):  # noqa: SLF001 - the public ways walk the tree again
            for tensor_name, tensor in group.items():
                if tensor is None:
                    continue
                if not is_readable(tensor):
                    raise UncacheableError(
                        Bypass.WEIGHTS,
                        f"weights of type {type(tensor).__name__} on {tensor.device} can't be digested",
                    )
                if gradients and tensor.requires_grad:
                    raise UncacheableError(
                        Bypass.GRADIENT,
                        f"gradients are enabled and {name}.{tensor_name} requires one",
                    )
                tensors.append((f"{name}.{tensor_name}", tensor))
                marks.append(tensor_mark(tensor))
    return Observation(tuple(modules), tuple(tensors), tuple(marks), tuple(code))


def _attributes(module: torch.nn.Module) -> tuple[tuple[tuple[str, object], ...], list[object]]:
    """Return settings of *module*, and what else lies on it: plain data, or else its identity."""
    settings: list[tuple[str, object]] = []
    others: list[object] = []
    for name, value in module.__dict__.items():
        if name in NO_STATE:
            continue
        kind = type(value)
        if kind in _PLAIN:
            if name.startswith("_"):
                others += (name, value)
            else:
                settings.append((name, value))
            continue
        others += (name, id(value))
        if kind in _COLLECTIONS and value and not name.startswith("_"):
            with contextlib.suppress(TypeError):  # of something else than settings
                settings.append((name, repr(plain(value))))
    return tuple(settings), others


def _require_usable(module: torch.nn.Module, *, mode_counts: bool) -> None:
    kind = type(module)
    if mode_counts and module.training:
        raise UncacheableError(Bypass.TRAINING, f"{kind.__name__} is in training mode; call eval()")
    if module._compiled_call_impl is not None or kind.__name__ == "OptimizedModule":  # noqa: SLF001 - set by compile()
        raise UncacheableError(Bypass.COMPILED, f"{kind.__name__} is compiled")
    if isinstance(module, torch.jit.ScriptModule):
        raise UncacheableError(Bypass.COMPILED, f"{kind.__name__} is scripted")
    if kind.__module__.split(".")[0] == "peft":
        raise UncacheableError(
            Bypass.ADAPTER, f"{kind.__name__} is an adapter in the encoder; merge it"
        )
    for hooks in (module._forward_hooks, module._forward_pre_hooks):  # noqa: SLF001 - there is no public way to ask
        if hooks and any(_is_foreign(hook) for hook in hooks.values()):
            raise UncacheableError(Bypass.HOOKS, f"{kind.__name__} has forward hooks")


def _is_foreign(hook: Callable[..., object]) -> bool:
    """Tell hooks from those by which the framework itself collects hidden states when asked to."""
    return not getattr(hook, "__module__", "").startswith("transformers.")


class ScopeWatch(TorchFunctionMode):
    """Sees whether code uses a parameter or buffer of a model that is outside of a scope.

    A context manager for the thread that enters it.

    Args:
        model: the whole model.
        observation: of the scope.
    """

    def __init__(self, model: torch.nn.Module, observation: Observation) -> None:
        super().__init__()
        inside = {id(tensor) for _, tensor in observation.tensors}
        named = [*model.named_parameters(), *model.named_buffers()]
        self._outside = {id(tensor): name for name, tensor in named if id(tensor) not in inside}
        self.used: set[str] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever *func* returns
        """Look at the arguments and call *func*."""
        named = dict(kwargs or {})
        for argument in (*args, *named.values()):
            for value in argument if isinstance(argument, (list, tuple)) else (argument,):
                if id(value) in self._outside:
                    self.used.add(self._outside[id(value)])
        return func(*args, **named)
