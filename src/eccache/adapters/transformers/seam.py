"""Where a model can be entered: the methods and towers that encode an image, a video or an audio clip."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import torch

from eccache.adapters.transformers.call import MAIN_INPUTS
from eccache.adapters.transformers.convention import KNOWN, UNKNOWN, Convention
from eccache.adapters.transformers.scope import Scope
from eccache.domain.errors import ConfigError

_MODALITIES = ("image", "video", "audio")


@attrs.frozen
class Seam:
    """A method that can be replaced on one object.

    Attributes:
        owner: the object.
        attribute: the method's name.
        modality: what it encodes.
        scope: what its output may depend on.
    """

    owner: torch.nn.Module
    attribute: str
    modality: str
    scope: Scope

    @property
    def config(self) -> Any:  # noqa: ANN401 - a PretrainedConfig of any model
        """The owner's configuration."""
        return self.owner.config

    @property
    def convention(self) -> Convention:
        """What is known of the encoder."""
        model_type = getattr(self.config, "model_type", "")
        return KNOWN.get((model_type, self.modality), UNKNOWN)

    @property
    def name(self) -> str:
        """The method's full name; part of every id."""
        owner = type(self.owner)
        return f"{owner.__module__}.{owner.__qualname__}.{self.attribute}"


def find_seams(model: torch.nn.Module, towers: Iterable[str]) -> list[Seam]:
    """Return the seams of *model*.

    Args:
        model: a `PreTrainedModel`.
        towers: names of modules to be entered instead of what would be found.

    Raises:
        ConfigError: there are none.
    """
    named = [_tower_named(model, name) for name in towers]
    found = named or [*_methods(model), *_audio_towers(model)]
    if not found:
        raise ConfigError(
            f"{type(model).__name__} has no get_image_features, get_video_features or "
            "get_audio_features, and no audio tower",
            remedy='name the modules that encode: cached_encoder(model, ..., towers=["vision_tower"])',
        )
    return found


def _methods(model: torch.nn.Module) -> Iterator[Seam]:
    """Yield the `get_<modality>_features` that the model's own forward and generate call."""
    base = getattr(model, "base_model", model)
    for modality in _MODALITIES:
        attribute = f"get_{modality}_features"
        owner = next((one for one in (base, model) if hasattr(type(one), attribute)), None)
        if owner is not None:
            yield Seam(owner, attribute, modality, Scope(owner=owner, whole=False))


def _audio_towers(model: torch.nn.Module) -> Iterator[Seam]:
    """Yield the audio encoder of a model that has no method for it."""
    base: Any = getattr(model, "base_model", model)
    if hasattr(type(base), "get_audio_features"):
        return
    if isinstance(getattr(base, "audio_tower", None), torch.nn.Module):
        yield _tower(base.audio_tower, "audio")
    elif base.config.is_encoder_decoder and MAIN_INPUTS.get(base.main_input_name) == "audio":
        yield _tower(base.get_encoder(), "audio")


def _tower_named(model: torch.nn.Module, name: str) -> Seam:
    try:
        module = model.get_submodule(name)
    except AttributeError as error:
        known = ", ".join(child for child, _ in model.named_children())
        raise ConfigError(
            f"{type(model).__name__} has no module {name!r}",
            remedy=f"its modules are {known}; name one of them or below",
        ) from error
    modalities = [MAIN_INPUTS.get(name) for name in inspect.signature(module.forward).parameters]
    return _tower(module, next((one for one in modalities if one), "image"))


def _tower(module: torch.nn.Module, modality: str) -> Seam:
    return Seam(module, "forward", modality, Scope(owner=module, whole=True))
