"""Where code lies, to be looked at again: objects in modules, on classes and functions, in closures.

And what code computes with: collections, configurations, tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import CellType
from typing import Any, Final

import torch

from eccache.adapters.transformers.settings import Plain, config_settings
from eccache.adapters.transformers.weights import (
    TensorMark,
    WeightSamples,
    tensor_mark,
    weights_digest,
)

ABSENT: Final = object()
"""What lies in a place where nothing is."""


class CodePlaces:
    """Places, and the objects that lay in them. Keeps these alive, so that identity is enough to compare."""

    def __init__(self) -> None:
        self._names: list[tuple[Mapping[str, Any], str, object]] = []
        self._attributes: list[tuple[object, str, object]] = []
        self._cells: list[tuple[CellType, object]] = []
        self._collections: list[tuple[Any, tuple[object, ...]]] = []
        self._configs: list[tuple[object, dict[str, Plain]]] = []
        self._tensors: list[tuple[torch.Tensor, TensorMark]] = []
        self._sampled: list[tuple[WeightSamples, bytes]] = []

    def add_name(self, space: Mapping[str, Any], name: str, found: object) -> None:
        """Note that a module, class or object has *found* by this name (or `ABSENT`)."""
        self._names.append((space, name, found))

    def add_attributes(self, holder: object, *names: str) -> None:
        """Note attributes that do not lie in a dictionary."""
        self._attributes += [(holder, name, getattr(holder, name)) for name in names]

    def add_cell(self, cell: CellType) -> object:
        """Note and return what a closure holds."""
        found = content(cell)
        self._cells.append((cell, found))
        return found

    def add_collection(self, collection: Any) -> None:  # noqa: ANN401 - a list, set or mapping
        """Note what a collection consists of."""
        self._collections.append((collection, tuple(_elements(collection))))

    def add_config(self, config: object) -> dict[str, Plain]:
        """Note and return what a configuration of the framework says."""
        settings = config_settings(config)
        self._configs.append((config, settings))
        return settings

    def add_tensor(self, tensor: torch.Tensor) -> str:
        """Note a tensor's content and return it as text."""
        samples = WeightSamples([("", tensor)])
        self._tensors.append((tensor, tensor_mark(tensor)))
        self._sampled.append((samples, samples.read()))
        return weights_digest([("", tensor)])

    def are_unchanged(self) -> bool:
        """Return whether every place holds the same object still. Cheap enough for every call."""
        return (
            all(space.get(name, ABSENT) is found for space, name, found in self._names)
            and all(getattr(holder, name) is found for holder, name, found in self._attributes)
            and all(content(cell) is found for cell, found in self._cells)
            and all(_consists(collection, of) for collection, of in self._collections)
            and all(tensor_mark(tensor) == mark for tensor, mark in self._tensors)
            and all(config_settings(config) == said for config, said in self._configs)
            and all(samples.read() == sampled for samples, sampled in self._sampled)
        )


def content(cell: CellType) -> object:
    """Return what lies in a cell of a closure."""
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return ABSENT


def _elements(collection: Any) -> Iterable[object]:  # noqa: ANN401 - as above
    if isinstance(collection, Mapping):
        for pair in collection.items():
            yield from pair
    else:
        yield from collection


def _consists(collection: Any, of: tuple[object, ...]) -> bool:  # noqa: ANN401 - as above
    now = tuple(_elements(collection))
    return len(now) == len(of) and all(map(_is, now, of))


def _is(one: object, other: object) -> bool:
    return one is other
