"""Functions of torch that were replaced.

What torch's own modules call, and what these call in turn, is known by torch's release. So a function in its
place that comes from elsewhere is not known; and the first run of an encoder, which is watched, would go
through it twice: torch's functions look themselves up by name when somebody watches.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any, Final

import torch

from eccache.adapters.transformers.code_kinds import is_compiled, root

_SPACES: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("torch.nn.functional", vars(torch.nn.functional)),
    ("torch.Tensor", vars(torch.Tensor)),
    ("torch", vars(torch)),
    ("torch.fft", vars(torch.fft)),
    ("torch.linalg", vars(torch.linalg)),
    ("torch.special", vars(torch.special)),
    ("torch._C._nn", vars(torch._C._nn)),  # noqa: SLF001 - from where functional has the rest
)
_OWN: Final = sys.stdlib_module_names | {"torch", "typing_extensions"}
_HOLDERS: Final = {classmethod: "__func__", property: "fget", staticmethod: "__func__"}
_NO_BUILT_IN: Final = (type, types.ModuleType)


class TorchFunctions:
    """Knows whether all public functions are torch's own. Any thread may ask.

    Looked at closely only when some name in torch means another object than before.
    """

    def __init__(self) -> None:
        self._judged: tuple[list[list[object]], str | None] = ([], None)

    def foreign(self) -> str | None:
        """Return the name of a function that is not torch's own; None if all are."""
        values = [list(space.values()) for _, space in _SPACES]
        before, found = self._judged
        if values != before:  # nearly all are functions, which are equal to themselves alone
            found = _foreign()
            self._judged = (values, found)
        return found


def _foreign() -> str | None:
    for home, space in _SPACES:
        for name, value in list(space.items()):
            counts = not name.startswith("_") or (home == "torch.Tensor" and name.endswith("__"))
            if counts and not _is_loss(name) and not _is_own(value):
                return f"{home}.{name}"
    return None


def _is_loss(name: str) -> bool:
    """Return whether no encoder calls a function of this name; Liger replaces some."""
    return name.endswith(("_loss", "cross_entropy"))


def _is_own(value: Any) -> bool:  # noqa: ANN401 - whatever lies in a module
    held = _HOLDERS.get(type(value))
    if held is not None:
        return _is_own(getattr(value, held))
    if not callable(value) or isinstance(value, _NO_BUILT_IN):
        return True
    if isinstance(value, types.FunctionType):
        home = str(value.__globals__.get("__name__"))
        wrapped = vars(value).get("__wrapped__")
        return (
            root(home) in _OWN and not is_compiled(value) and (wrapped is None or _is_own(wrapped))
        )
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return root(str(getattr(value, "__module__", None))) in {*_OWN, "None"}
    if type(value).__module__ == "functools":  # a partial, or one with a cache, which torch has
        return _is_own(getattr(value, "__wrapped__", _foreign))
    return root(type(value).__module__) in _OWN
