"""Reading vLLM's requests: what the cache wants to know of each multimodal input.

vLLM's objects are taken as they come; nothing here changes them.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable
from typing import Any, Final

PASSTHROUGH_MODALITY: Final = "prompt_embeds"
EMBEDDING_SUFFIX: Final = "_embeds"
_MAX_METADATA_ELEMENTS: Final = 64
"""A grid, a token count, a list of timestamps: far below any picture, clip or sound."""


def values_of(data: Any) -> dict[str, Any]:
    """Return what the processor made of an input, by name.

    Args:
        data: vLLM's mapping of elements; that of most versions is a `UserDict`, whose own views take ten
            times as long as those of the dict in it.
    """
    elements = data.data if isinstance(data, UserDict) else data
    return {name: element.data for name, element in elements.items()}


def end_of(feature: Any) -> int:
    """Return the position behind the last prompt token of *feature*."""
    return int(feature.mm_position.offset + feature.mm_position.length)


def rows_of(feature: Any) -> int:
    """Return how many rows the encoder output of *feature* must have."""
    return int(feature.mm_position.get_num_embeds())


def grouped(mm_features: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the inputs that need an encoder output, by id: one id may occur several times."""
    groups: dict[str, list[Any]] = {}
    for feature in mm_features:
        if rows_of(feature) > 0:
            groups.setdefault(feature.identifier, []).append(feature)
    return groups


def is_passthrough(feature: Any) -> bool:
    """Return whether the client sent the embedding itself, so that no encoder runs.

    Such an embedding is never stored: under an id that a client chose, it would be served to others as
    the encoder's output.
    """
    if feature.modality == PASSTHROUGH_MODALITY:
        return True
    return feature.data is not None and any(
        name.endswith(EMBEDDING_SUFFIX) and value is not None
        for name, value in values_of(feature.data).items()
    )


def is_expected(request: Any, identifier: str) -> bool:
    """Return whether the request says that another server is storing the input.

    `ec_transfer_params` comes from the client, so its shape is checked, and nothing in it is used but
    that it names the input.
    """
    params = getattr(request, "ec_transfer_params", None)
    return isinstance(params, dict) and isinstance(params.get(identifier), dict)


def lacks_input(feature: Any, metadata_fields: Callable[[str], Iterable[str]]) -> bool:
    """Return whether there is nothing that an encoder, or the model itself, could work on.

    On a consumer a request may carry only what sizes an input's place in the prompt (a grid, a number
    of tokens). If nobody can supply its encoder output, the request can't be served.

    Args:
        feature: vLLM's input.
        metadata_fields: names of the fields that only size the place, by modality; slow at first, so it
            is asked only where all fields are as small as such fields are.
    """
    if feature.data is None:
        return True
    fields = values_of(feature.data)
    if any(_is_large(value) for value in fields.values()):
        return False
    sizing = set(metadata_fields(feature.modality))
    return all(value is None or name in sizing for name, value in fields.items())


def _is_large(value: Any) -> bool:
    if hasattr(value, "numel"):
        return bool(value.numel() > _MAX_METADATA_ELEMENTS)
    if isinstance(value, (list, tuple)):
        return len(value) > _MAX_METADATA_ELEMENTS or any(_is_large(part) for part in value)
    return False
