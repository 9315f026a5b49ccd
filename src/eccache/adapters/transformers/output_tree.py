"""An encoder's output, taken apart into tensors and a tree of plain data, and made again."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import attrs
import torch
from transformers import modeling_outputs
from transformers.utils import ModelOutput

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.settings import Plain, plain

_TENSOR: Final = "tensor"
_LIST: Final = "list"
_TUPLE: Final = "tuple"
_OUTPUT: Final = "output"
_FIELDS: Final = "fields"
_DROPPED: Final = "dropped"
_VALUE: Final = "value"


@attrs.frozen
class OutputTree:
    """An output, taken apart.

    Attributes:
        root: plain data in which a tensor is the number of its place in `tensors`.
        tensors: all of them.
    """

    root: Plain
    tensors: tuple[torch.Tensor, ...]


def take_apart(output: object, dropped: frozenset[str], device: torch.device) -> OutputTree:
    """Take an encoder's output apart.

    Args:
        output: a `ModelOutput`, tensor, tuple or list of these.
        dropped: fields of outputs that are left out.
        device: where every tensor has to be.

    Raises:
        UncacheableError: it has something in it that could not be made again.
    """
    tensors: list[torch.Tensor] = []

    def visit(value: object) -> Plain:
        if isinstance(value, torch.Tensor):
            tensors.append(_storable(value, device))
            return {_TENSOR: len(tensors) - 1}
        if isinstance(value, ModelOutput):
            kept = {name: visit(one) for name, one in value.items() if name not in dropped}
            missing: list[Plain] = sorted(dropped & value.keys())
            return {_OUTPUT: type(value).__name__, _FIELDS: kept, _DROPPED: missing}
        if type(value) in (tuple, list):
            items = [visit(one) for one in value]  # type: ignore[attr-defined]  # both are sequences
            return {_TUPLE if type(value) is tuple else _LIST: items}
        try:
            return {_VALUE: plain(value)}
        except TypeError as error:
            raise UncacheableError(Bypass.OUTPUT, f"output: {error}", settled=True) from error

    return OutputTree(visit(output), tuple(tensors))


def made_again(tree: OutputTree, homes: tuple[str, ...]) -> object:
    """Return the output of *tree*; the inverse of `take_apart`.

    Where fields were left out, the result says so when they are asked for.

    Args:
        tree: what `take_apart` returned, perhaps in another process.
        homes: names of the modules in which the model's class and its bases are defined.

    Raises:
        UncacheableError: it is no such tree, or the model has no output of that name.
    """

    def visit(node: object) -> object:
        match node:
            case {"tensor": int(place)} if 0 <= place < len(tree.tensors):
                return tree.tensors[place]
            case {"output": str(name), "fields": dict(fields), "dropped": list(missing)}:
                made = {field: visit(one) for field, one in fields.items()}
                return _output_class(name, homes, frozenset(missing))(**made)
            case {"tuple": list(items)}:
                return tuple(visit(item) for item in items)
            case {"list": list(items)}:
                return [visit(item) for item in items]
            case {"value": value}:
                return value
            case _:
                raise _unknown(f"{str(node)[:80]} is no part of an output")

    return visit(tree.root)


def join(trees: Sequence[OutputTree], stacked: frozenset[str]) -> OutputTree:
    """Return the output for all items of which *trees* are the outputs for one each, in their order.

    A tensor's rows follow those of the item before; a tuple or list of one element becomes one of as many
    elements as there are items.

    Args:
        trees: at least one.
        stacked: fields whose lists have an element for each layer, not for each item.

    Raises:
        UncacheableError: they differ in form, so that this can't be right.
    """
    joiner = _Joiner(trees, stacked)
    root = joiner.visit([tree.root for tree in trees], layers=False)
    return OutputTree(root, tuple(joiner.tensors))


class _Joiner:
    """Walks trees side by side."""

    def __init__(self, trees: Sequence[OutputTree], stacked: frozenset[str]) -> None:
        self._trees = trees
        self._stacked = stacked
        self.tensors: list[torch.Tensor] = []

    def visit(self, nodes: Sequence[Any], *, layers: bool) -> Plain:
        """Join the nodes at one place of all trees."""
        kinds = {tuple(sorted(node)) for node in nodes}
        if len(kinds) != 1:
            raise _different("kind")
        kind = kinds.pop()
        if kind == (_TENSOR,):
            return self._add(_concatenated(self._meant(nodes)))
        if _OUTPUT in kind:
            return self._output(nodes)
        if kind in {(_TUPLE,), (_LIST,)}:
            lists = [node[kind[0]] for node in nodes]
            return {kind[0]: self._layers(lists) if layers else self._items(lists)}
        if any(node != nodes[0] for node in nodes):
            raise _different("value")
        return dict(nodes[0])

    def _output(self, nodes: Sequence[Any]) -> Plain:
        names = {(node[_OUTPUT], tuple(node[_FIELDS]), tuple(node[_DROPPED])) for node in nodes}
        if len(names) != 1:
            raise _different("fields")
        fields: dict[str, Plain] = {
            name: self.visit([node[_FIELDS][name] for node in nodes], layers=name in self._stacked)
            for name in nodes[0][_FIELDS]
        }
        return {**nodes[0], _FIELDS: fields}

    def _layers(self, lists: Sequence[list[Any]]) -> list[Plain]:
        if len({len(items) for items in lists}) != 1:
            raise _different("number of layers")
        return [self.visit(layer, layers=False) for layer in zip(*lists, strict=True)]

    def _items(self, lists: Sequence[list[Any]]) -> list[Plain]:
        if any(len(items) != 1 or items[0].keys() != {_TENSOR} for items in lists):
            raise _different("number or kind of elements")
        return [self._add(tensor) for tensor in self._meant([items[0] for items in lists])]

    def _meant(self, nodes: Sequence[Any]) -> list[torch.Tensor]:
        pairs = zip(self._trees, nodes, strict=True)
        return [tree.tensors[node[_TENSOR]] for tree, node in pairs]

    def _add(self, tensor: torch.Tensor) -> Plain:
        self.tensors.append(tensor)
        return {_TENSOR: len(self.tensors) - 1}


def _concatenated(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    forms = {(part.dtype, part.shape[1:], part.dim() > 0) for part in parts}
    if len(forms) != 1 or not parts[0].dim():
        raise _different("shape")
    return torch.cat(list(parts))


def _different(what: str) -> UncacheableError:
    cause = f"the outputs of a call's items differ in {what}, or can't be joined"
    return UncacheableError(Bypass.OUTPUT, cause)


def _unknown(cause: str) -> UncacheableError:
    return UncacheableError(Bypass.OUTPUT, cause, settled=True)


def _storable(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        raise UncacheableError(
            Bypass.OUTPUT, f"output: a {type(tensor).__name__} is no plain tensor", settled=True
        )
    if tensor.requires_grad:
        raise UncacheableError(
            Bypass.SCOPE,
            "the output carries a gradient of weights outside the encoder",
            settled=True,
        )
    if tensor.device != device:
        raise UncacheableError(Bypass.OUTPUT, f"output: a tensor on {tensor.device}", settled=True)
    return tensor


class _NotKept:
    """A field that is not there, and says so."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError(
            f"{self._name} of this output is not kept by the cache; "
            "pass cached_encoder(..., every_field=True) to keep it"
        )

    def __set__(self, instance: object, value: object) -> None:
        """Ignore the None that the constructor sets."""


def _refuse_position(_: object) -> NoReturn:
    raise TypeError(
        "the cache does not keep all fields of this output, so that a place in it means nothing; "
        "ask for a field by name, or pass cached_encoder(..., every_field=True)"
    )


def _fill(self: Any) -> None:  # noqa: ANN401 - any output class
    for field in dataclasses.fields(self):
        value = self.__dict__.get(field.name)
        if value is not None:
            self[field.name] = value


def _remade(
    name: str, homes: tuple[str, ...], missing: frozenset[str], fields: dict[str, object]
) -> object:
    """Make a copied or pickled output again: its class has no name that could be imported."""
    return _output_class(name, homes, missing)(**fields)


@functools.cache
def _output_class(
    name: str, homes: tuple[str, ...], missing: frozenset[str]
) -> Callable[..., object]:
    """Return the framework's output class of that *name*, or one derived from it without some fields."""
    for home in (*homes, modeling_outputs.__name__):
        found = getattr(sys.modules.get(home), name, None)
        if isinstance(found, type) and issubclass(found, ModelOutput):
            break
    else:
        raise _unknown(f"there is no output class {name[:80]!r} in {homes[0]}")
    if not missing:
        return found
    known = {field.name for field in dataclasses.fields(found)}
    if not missing <= known:
        raise _unknown(f"{name} has no fields {sorted(missing - known)}")
    members: dict[str, object] = {field: _NotKept() for field in missing}
    members |= {
        "__module__": __name__,
        "__post_init__": _fill,
        "__reduce__": lambda self: (_remade, (name, homes, missing, dict(self))),
        "__repr__": lambda self: f"{name}({dict(self)}, without {', '.join(sorted(missing))})",
        "to_tuple": _refuse_position,
    }
    return type(f"{name}Without_{'_'.join(sorted(missing))}", (found,), members)
