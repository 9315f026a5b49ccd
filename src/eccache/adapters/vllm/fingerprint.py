"""What must be equal for two servers to share encoder outputs, read from vLLM's live configuration.

An allow-list: each ingredient is something that changes an encoder output and is not part of an input's
id already. Role flags stay out: a producer and a consumer differ in them and must share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

_DEVICE_KEYS: Final = frozenset({"device"})
"""Where a processor runs, not what it makes. vLLM sets it on a producer and not on its consumer."""


@attrs.frozen
class ModelIdentity:
    """The model as its entries know it.

    Attributes:
        model: name or path, as in keys.
        encoder_dtype: torch's name of the dtype that the encoder runs in.
        ingredients: what must match for reuse, in words.
    """

    model: str
    encoder_dtype: str
    ingredients: Mapping[str, str]


def model_identity(vllm_config: Any, *, vllm_version: str) -> ModelIdentity:
    """Return the identity of the model that vLLM was configured to serve.

    Args:
        vllm_config: vLLM's whole configuration.
        vllm_version: vLLM's version, or an empty text where other versions may share.
    """
    model = vllm_config.model_config
    multimodal = model.multimodal_config
    dtype = str(model.dtype).removeprefix("torch.")
    ingredients = {
        "model": str(model.model),
        "revision": str(model.revision or ""),
        "dtype": dtype,
        "quantization": str(model.quantization or ""),
        "vllm": vllm_version,
    }
    if multimodal is not None:
        ingredients |= {
            "processor_kwargs": _canonical(_without_device(multimodal.mm_processor_kwargs)),
            "media_io_kwargs": _canonical(multimodal.media_io_kwargs),
            "video_pruning_rate": str(multimodal.video_pruning_rate or 0),
            "encoder_attention": str(multimodal.mm_encoder_attn_backend or ""),
        }
    return ModelIdentity(str(model.model), dtype, ingredients)


def _without_device(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (kwargs or {}).items() if key not in _DEVICE_KEYS}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
