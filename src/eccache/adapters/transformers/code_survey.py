"""The code that an encoder runs, as far as a model's own classes and whoever patches them decide over it.

A release says nothing of a method that was replaced at run time, on an object, on a class or in a module.
So the code itself is looked at: of each module's class what can run when the module is called, then
whatever that code names, in modules and on classes, and what its closures hold. It ends at the packages
whose functions are known by name.

A name that code uses is followed wherever it leads: no attempt is made to tell which object it was looked
up on. So more is looked at than runs, and never less.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import json
import types
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
import torch
from transformers import PreTrainedConfig

from eccache.adapters.transformers.bypass import Bypass
from eccache.adapters.transformers.bytecode import code_digest, code_names
from eccache.adapters.transformers.code_kinds import (
    BUILT_IN,
    FUNCTIONS,
    KNOWN_BY_NAME,
    PLAIN,
    TORCH_VALUES,
    UNTOLD_NAMES,
    WITHOUT_PART,
    WRAPPING,
    is_code,
    is_compiled,
    is_own,
    is_state,
    is_unreleased,
    is_untold,
    only_moves,
    root,
)
from eccache.adapters.transformers.code_places import ABSENT, CodePlaces
from eccache.adapters.transformers.settings import objects_of
from eccache.adapters.transformers.weights import is_readable

_NO_PART: Final = "transformers.generation."
"""Models inherit it; no encoder runs it."""
_RUN_BY_CALLING: Final = frozenset({"forward", "_call_impl", "_wrapped_call_impl"})
_NOT_RUN: Final = frozenset(
    {
        *("__init__", "__init_subclass__", "__new__", "__class_getitem__", "__del__"),
        *(
            "__getstate__",
            "__setstate__",
            "__reduce__",
            "__reduce_ex__",
            "__copy__",
            "__deepcopy__",
        ),
        *("__dir__", "__repr__", "__str__", "__delattr__"),
    }
)
"""Special methods of a module that have no part in a call of it. (torch itself replaces some.)"""
_DEEPEST: Final = 40


class Transparent:
    """A replacement that runs what it replaced.

    Attributes:
        replaced: what the object itself had in this place; None if its class's own is meant.
    """

    replaced: object | None = None


@attrs.frozen
class ScopeCode:
    """Where to begin.

    Attributes:
        modules: of the scope, by name.
        owner: the one whose `forward` is no run of the encoder; None if there is none.
        entries: the methods by which the encoder is entered.
        words: texts of the configuration, by which implementations are chosen.
    """

    modules: tuple[tuple[str, torch.nn.Module], ...]
    owner: torch.nn.Module | None
    entries: frozenset[str]
    words: frozenset[str]


class CodeSurvey:
    """What was found at one moment.

    Args:
        start: where to begin.

    Attributes:
        obstacle: what can't be told, as a reason and in words; None if everything can.
        places: where everything was found.
    """

    def __init__(self, start: ScopeCode) -> None:
        self.obstacle: tuple[Bypass, str] | None = None
        self.places = CodePlaces()
        self._lines: set[str] = set()
        self._start = start
        self._modules = {id(module): name for name, module in start.modules}
        self._names: set[str] = set(start.entries)
        self._classes: dict[type, bool] = {}
        self._pending: list[tuple[dict[str, Any], tuple[str, ...]]] = []
        self._seen: set[tuple[int, str]] = set()
        self._open: list[int] = []
        self._on_module = False
        self._texts: dict[tuple[int, bool], tuple[object, str]] = {}
        for _, module in start.modules:
            self._add_class(type(module), runs=module is not start.owner)
        self._look_at_everything()
        self._watch_for_overrides()

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 over all code, in hex. The same in every process of one release of Python."""
        return hashlib.sha256("\n".join(sorted(self._lines)).encode()).hexdigest()

    def _look_at_everything(self) -> None:
        size = None
        while size != (size := (len(self._names), len(self._classes), len(self._seen))):
            while self._pending:
                self._follow(*self._pending.pop(), set())
            for kind, runs in list(self._classes.items()):
                self._look_at_class(kind, runs=runs)
            for name, module in self._start.modules:
                self._look_at_object(name, module)

    def _add_class(self, kind: type, *, runs: bool = False) -> None:
        for base in kind.__mro__:
            package = root(base.__module__)
            if base.__module__.startswith(_NO_PART):
                continue
            if package not in KNOWN_BY_NAME or (
                package == "torch" and issubclass(base, torch.nn.Module)
            ):
                self._classes[base] = self._classes.get(base, False) or runs

    def _look_at_class(self, kind: type, *, runs: bool) -> None:
        home = f"{kind.__module__}.{kind.__qualname__}"
        for name, value in list(vars(kind).items()):
            if (id(kind), name) in self._seen:
                continue
            if name.startswith("__") and name.endswith("__"):
                run = isinstance(value, types.FunctionType) and not (
                    name in _NOT_RUN and issubclass(kind, torch.nn.Module)
                )
            else:
                run = name in self._names or (runs and name in _RUN_BY_CALLING)
            if run:
                self._found(f"{home}.{name}", kind, vars(kind), name, strict=is_unreleased(home))

    def _look_at_object(self, module_name: str, module: torch.nn.Module) -> None:
        """Look at what lies on one module: functions that run in place of its class's, and what code uses."""
        for name, value in list(vars(module).items()):
            if (id(module), name) in self._seen:
                continue
            if not is_code(value):
                if name in self._names and is_state(module, name):
                    self._on_module = True
                    self._found(module_name, module, vars(module), name, strict=True)
                    self._on_module = False
                continue
            if name not in self._names and (module is self._start.owner or name.startswith("_")):
                continue
            self._seen.add((id(module), name))
            stock = value.replaced if isinstance(value, Transparent) else self._below(module, value)
            if stock is not None and not is_own(module, name, stock):
                text = self._described(stock, strict=True)
                self._lines.add(f"{module_name}:{name} = {text}")

    def _below(self, module: torch.nn.Module, value: object) -> object:
        """Return what runs below accelerate's hooks where these only move tensors between devices."""
        function = getattr(value, "func", None)
        if (
            isinstance(value, functools.partial)
            and isinstance(function, types.FunctionType)
            and function.__globals__.get("__name__") == "accelerate.hooks"
            and value.args == (module,)
            and only_moves(vars(module).get("_hf_hook"))
        ):
            for name in ("_hf_hook", "_old_forward"):
                self.places.add_name(vars(module), name, vars(module).get(name, ABSENT))
            return vars(module).get("_old_forward", value)
        return value

    def _watch_for_overrides(self) -> None:
        """Notice when a class gets something of its own in front of what was found on one of its bases."""
        for kind in self._classes:
            space = vars(kind)
            inherited = {
                name
                for base in kind.__mro__[1:]
                for name in vars(base)
                if (id(base), name) in self._seen
            }
            for name in inherited - space.keys():
                self.places.add_name(space, name, ABSENT)

    def _follow(self, space: dict[str, Any], names: Iterable[str], visited: set[int]) -> None:
        """Look at what *names* mean in a module, and in modules that they mean."""
        visited.add(id(space))
        home = str(space.get("__name__"))
        for name in names:
            value = space.get(name, ABSENT)
            if isinstance(value, types.ModuleType) and id(vars(value)) not in visited:
                self._follow(vars(value), names, visited)
            if (id(space), name) in self._seen:
                continue
            if value is not ABSENT:
                self._found(f"{home}.{name}", space, space, name, strict=is_unreleased(home))
            elif hasattr(builtins, name):
                self._seen.add((id(space), name))
                self.places.add_name(space, name, ABSENT)

    def _found(
        self, place: str, holder: object, space: Mapping[str, Any], name: str, *, strict: bool
    ) -> None:
        self._seen.add((id(holder), name))
        value = space[name]
        self.places.add_name(space, name, value)
        text = self._described(value, strict=strict)
        if not isinstance(value, types.ModuleType):  # what is used of it has lines of its own
            self._lines.add(f"{place} = {text}")

    def _described(self, value: Any, *, strict: bool) -> str:  # noqa: ANN401 - anything at all
        """Return *value* as text. Strictly: what can't be told must not be passed over."""
        if isinstance(value, PLAIN):
            return repr(value)
        known = self._texts.get((id(value), strict))
        if known is not None:
            return known[1]
        if id(value) in self._open:
            return "itself"
        if len(self._open) > _DEEPEST:
            return self._untold(value, strict=strict)
        self._open.append(id(value))
        text = self._taken_apart(value, strict=strict)
        self._open.pop()
        self._texts[id(value), strict] = (value, text)
        return text

    def _taken_apart(self, value: Any, *, strict: bool) -> str:  # noqa: ANN401, PLR0911 - as above
        if isinstance(value, TORCH_VALUES):
            return str(value)
        if isinstance(value, types.ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, type):
            self._add_class(value)
            return f"class {value.__module__}.{value.__qualname__}"
        if isinstance(value, (torch.Tensor, torch.nn.Module, PreTrainedConfig)):
            return self._part(value, strict=strict)
        if strict and is_untold(value):
            return self._untold(value, strict=strict)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, BUILT_IN):
            return self._built_in(value, strict=strict)
        parts = WRAPPING.get(type(value))
        if parts is not None:
            held = [self._described(getattr(value, part), strict=strict) for part in parts]
            return f"{type(value).__name__}({', '.join(held)})"
        if isinstance(value, (tuple, list, set, frozenset, Mapping)):
            return self._collection(value, strict=strict)
        return self._instance(value, strict=strict)

    def _part(
        self, value: torch.Tensor | torch.nn.Module | PreTrainedConfig, *, strict: bool
    ) -> str:
        if id(value) in self._modules:
            return f"module {self._modules[id(value)]}"
        if isinstance(value, PreTrainedConfig):
            said = json.dumps(self.places.add_config(value), sort_keys=True)
            held = []
            for name, one in objects_of(value):
                self.places.add_name(vars(value), name, one)
                held.append(f"{name}={self._described(one, strict=True)}")
            return f"configuration {said}({', '.join(held)})"
        if isinstance(value, torch.Tensor) and self._on_module:
            return self._tensor(value)
        return self._untold(value, strict=strict)

    def _tensor(self, tensor: torch.Tensor) -> str:
        """Take a tensor on a module, which is neither parameter nor buffer, by its bytes."""
        if tensor.is_meta:  # without content; released models have some that nothing reads
            return f"meta {tensor.dtype} {tuple(tensor.shape)}"
        if not is_readable(tensor):
            self.obstacle = (Bypass.WEIGHTS, f"a {type(tensor).__name__} can't be digested")
            return "a tensor"
        return f"tensor {self.places.add_tensor(tensor)}"

    def _function(self, function: types.FunctionType) -> str:
        home = str(function.__globals__.get("__name__"))
        code = function.__code__
        strict = is_unreleased(home)
        if is_compiled(function) and self.obstacle is None:
            self.obstacle = (Bypass.COMPILED, f"{function.__qualname__} is compiled")
        self.places.add_attributes(function, "__code__", "__defaults__", "__kwdefaults__")
        held = [
            self._described(self.places.add_cell(cell), strict=strict)
            for cell in function.__closure__ or ()
        ]
        if root(home) in KNOWN_BY_NAME:
            return f"function {home}.{code.co_qualname}({', '.join(held)})"
        held += [
            self._described(function.__defaults__, strict=strict),
            self._described(function.__kwdefaults__, strict=strict),
        ]
        names = tuple(dict.fromkeys(code_names(code)))
        reads = strict and UNTOLD_NAMES.intersection(names)
        if reads and self.obstacle is None:
            self.obstacle = (Bypass.PATCHED, f"{code.co_qualname} uses {', '.join(sorted(reads))}")
        self._names.update(names)
        self._pending.append((function.__globals__, names))
        return f"function {home} {code_digest(code)}({', '.join(held)})"

    def _built_in(self, value: Any, *, strict: bool) -> str:  # noqa: ANN401 - of many kinds
        bound = getattr(value, "__self__", None)
        of = "" if bound is None else self._described(bound, strict=strict)
        return f"built in {getattr(value, '__module__', None)}.{value.__qualname__} {of}"

    def _collection(self, value: Any, *, strict: bool) -> str:  # noqa: ANN401 - of many kinds
        if hasattr(type(value), "_global_mapping"):
            return self._chosen(value, strict=strict)
        if not strict and not isinstance(value, (tuple, frozenset)):
            return self._functions_in(value)
        self.places.add_collection(value)
        if isinstance(value, Mapping):
            elements = [
                f"{self._described(key, strict=strict)}: {self._described(one, strict=strict)}"
                for key, one in value.items()
            ]
        else:
            elements = [self._described(one, strict=strict) for one in value]
        if isinstance(value, (set, frozenset)):
            elements.sort()
        return f"{type(value).__name__}({', '.join(elements)})"

    def _functions_in(self, value: Any) -> str:  # noqa: ANN401 - of many kinds
        """Of what a released package keeps, look at functions: what else is in it changes while it runs."""
        elements = []
        for key, one in value.items() if isinstance(value, Mapping) else ():
            if isinstance(key, str) and isinstance(one, FUNCTIONS):
                self.places.add_name(value, key, one)
                elements.append(f"{key!r}: {self._described(one, strict=False)}")
        return f"{type(value).__name__}({', '.join(elements)})"

    def _chosen(self, table: Any, *, strict: bool) -> str:  # noqa: ANN401 - the framework's GeneralInterface
        """Of a table of implementations, look at those which the configuration names."""
        elements = []
        for word in sorted(self._start.words):
            for mapping in (table._local_mapping, table._global_mapping):  # noqa: SLF001 - what it is made of
                self.places.add_name(mapping, word, mapping.get(word, ABSENT))
            if word in table:
                elements.append(f"{word!r}: {self._described(table[word], strict=strict)}")
        return f"{type(table).__name__}({', '.join(elements)})"

    def _instance(self, value: Any, *, strict: bool) -> str:  # noqa: ANN401 - of any class
        kind = type(value)
        text = f"a {kind.__module__}.{kind.__qualname__}"
        if isinstance(value, WITHOUT_PART):
            return text
        self._add_class(kind)
        if not strict and not callable(value):
            return text  # state of a released package
        fields = getattr(value, "__dict__", None)
        if not isinstance(fields, dict) or any(
            vars(base).get("__slots__") for base in kind.__mro__
        ):
            return self._untold(value, strict=strict)
        self.places.add_collection(fields)
        held = [f"{name}={self._described(fields[name], strict=strict)}" for name in sorted(fields)]
        return f"{text}({', '.join(held)})"

    def _untold(self, value: object, *, strict: bool) -> str:
        text = f"a {type(value).__module__}.{type(value).__qualname__}"
        if strict and self.obstacle is None:
            self.obstacle = (
                Bypass.PATCHED,
                f"the encoder's code was replaced by some that holds {text}",
            )
        return text
