"""How the encoders of known models take several items in one call, and what of their output is used.

A model that is not in the table is cached by whole calls: the same tensors in the same batch. That needs
no knowledge and is right for any encoder. For those in the table it is known, and tested on each, that
the items of a call don't influence one another, so that each is an entry of its own and it does not
matter in what company it comes back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs
import torch

from eccache.adapters.transformers.call import EncoderCall


class Division(enum.Enum):
    """How a call's tensors divide into items."""

    WHOLE = "whole"
    """Not at all."""
    ROWS = "rows"
    """Row i of every tensor is item i's."""
    GRID = "grid"
    """All items' patches lie one after the other, and a grid says how many are whose."""


@attrs.frozen
class Convention:
    """What is known of an encoder.

    Attributes:
        division: how calls divide into items.
        rank: dimensions of the tensor that is encoded; one of another rank is not divided.
        beside: tensors that may come with it and are divided alike; with any other the call is not divided.
        dropped: fields of the output that nothing but a caller's own code would read; not stored.
        stacked: fields with one tensor for each layer, in which the items' rows follow one another.
    """

    division: Division = Division.WHOLE
    rank: int = 0
    beside: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()
    stacked: frozenset[str] = frozenset()


_INTERMEDIATE: Final = frozenset({"attentions", "hidden_states"})
UNKNOWN: Final = Convention(dropped=_INTERMEDIATE)
"""Any encoder. LLaVA's kin return all hidden states without being asked; those alone are left out."""

_DROPPED: Final = _INTERMEDIATE | {"last_hidden_state"}
_IMAGES: Final = Convention(Division.ROWS, rank=4, dropped=_DROPPED)
_MEL: Final = Convention(
    Division.ROWS, rank=3, beside=frozenset({"attention_mask"}), dropped=_INTERMEDIATE
)
_PATCHES: Final = Convention(
    Division.GRID,
    rank=2,
    beside=frozenset({"image_grid_thw", "video_grid_thw"}),
    dropped=_DROPPED,
    stacked=frozenset({"deepstack_features"}),
)

KNOWN: Final[Mapping[tuple[str, str], Convention]] = MappingProxyType(
    {
        ("clip", "image"): _IMAGES,
        ("gemma3", "image"): _IMAGES,
        ("llava", "image"): _IMAGES,
        ("paligemma", "image"): _IMAGES,
        ("siglip", "image"): _IMAGES,
        ("qwen2_5_vl", "image"): _PATCHES,
        ("qwen2_5_vl", "video"): _PATCHES,
        ("qwen2_vl", "image"): _PATCHES,
        ("qwen2_vl", "video"): _PATCHES,
        ("qwen3_vl", "image"): _PATCHES,
        ("qwen3_vl", "video"): _PATCHES,
        ("qwen2_audio_encoder", "audio"): _MEL,
        ("whisper", "audio"): _MEL,
    }
)
"""By model type of the module that has the method, and modality."""


def divide(call: EncoderCall, convention: Convention) -> list[EncoderCall] | None:
    """Return *call* as one call for each item; None where it is to be taken whole."""
    main = call.tensors[call.main]
    beside = {name: tensor for name, tensor in call.tensors.items() if name != call.main}
    if main.dim() != convention.rank or not beside.keys() <= convention.beside:
        return None
    if convention.division is Division.ROWS:
        return _by_rows(call, main, beside)
    if convention.division is Division.GRID and len(beside) == 1:
        return _by_grid(call, main, *beside.items())
    return None


def _by_rows(
    call: EncoderCall, main: torch.Tensor, beside: dict[str, torch.Tensor]
) -> list[EncoderCall] | None:
    count = main.shape[0]
    if count == 0 or any(not tensor.dim() or len(tensor) != count for tensor in beside.values()):
        return None
    return [
        call.part({name: tensor[row : row + 1] for name, tensor in call.tensors.items()})
        for row in range(count)
    ]


def _by_grid(
    call: EncoderCall, main: torch.Tensor, named_grid: tuple[str, torch.Tensor]
) -> list[EncoderCall] | None:
    name, grid = named_grid
    if grid.dim() != 2 or grid.is_floating_point():  # noqa: PLR2004 - items by axes
        return None
    lengths = [int(length) for length in grid.prod(-1).tolist()]
    if not lengths or min(lengths) < 1 or sum(lengths) != main.shape[0]:
        return None
    patches = main.split(lengths)
    return [
        call.part({call.main: patches[row], name: grid[row : row + 1]})
        for row in range(len(lengths))
    ]
