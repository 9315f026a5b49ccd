"""One call of an encoder, taken apart: tensors by name, settings by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import torch

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.settings import Plain, plain

MAIN_INPUTS: Final[Mapping[str, str]] = {
    "pixel_values": "image",
    "pixel_values_images": "image",
    "image_patches": "image",
    "pixel_values_videos": "video",
    "input_features": "audio",
    "input_values": "audio",
}
"""The modality of what an encoder encodes, by the name that the framework gives it."""


@attrs.frozen
class EncoderCall:
    """A call, or the part of one that concerns a single item.

    Attributes:
        main: name of the tensor that is encoded.
        tensors: arguments that are tensors.
        settings: all other arguments, as plain data.
        others: the same as they were given, to be passed on.
    """

    main: str
    tensors: dict[str, torch.Tensor]
    settings: dict[str, Plain]
    others: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """What to call the method with."""
        return {**self.others, **self.tensors}

    def part(self, tensors: dict[str, torch.Tensor]) -> EncoderCall:
        """Return the same call with other tensors."""
        return attrs.evolve(self, tensors=tensors)


def bind(
    signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> EncoderCall:
    """Take the call `method(*args, **kwargs)` apart.

    Raises:
        UncacheableError: it asks for what is not stored, or an argument's content can't be told.
    """
    given = _by_name(signature, args, kwargs)
    _require_plain_output(given)
    main = next((name for name in given if name in MAIN_INPUTS), None)
    if main is None or not isinstance(given[main], torch.Tensor):
        raise UncacheableError(Bypass.ARGUMENTS, "there is no single tensor to encode")
    tensors: dict[str, torch.Tensor] = {}
    settings: dict[str, Plain] = {}
    others: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = _readable(name, value)
            continue
        others[name] = value
        try:
            settings[name] = plain(value)
        except TypeError as error:
            raise UncacheableError(Bypass.ARGUMENTS, f"argument {name}: {error}") from error
    return EncoderCall(main, tensors, settings, others)


def _by_name(
    signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UncacheableError(Bypass.ARGUMENTS, str(error)) from error
    bound.apply_defaults()
    given: dict[str, object] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            given.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            if value:
                raise UncacheableError(Bypass.ARGUMENTS, "arguments without names")
        else:
            given[name] = value
    return given


def _require_plain_output(given: dict[str, object]) -> None:
    if given.pop("return_dict", None) is False:
        raise UncacheableError(Bypass.POSITIONAL, "return_dict=False")
    for name in [name for name in given if name.startswith("output_")]:
        if given.pop(name):
            raise UncacheableError(Bypass.INTERMEDIATES, f"{name} is asked for")


def _readable(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise UncacheableError(Bypass.ARGUMENTS, f"argument {name} is a {type(tensor).__name__}")
    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        raise UncacheableError(Bypass.ARGUMENTS, f"argument {name} is not a dense tensor with data")
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise UncacheableError(Bypass.GRADIENT, f"argument {name} requires a gradient")
    return tensor
