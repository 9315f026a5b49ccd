"""What must be equal for two servers to share encoder outputs, read from vLLM's live configuration.

An allow-list: each ingredient is something that changes an encoder output and is not part of an input's
id already. Role flags stay out: a producer and a consumer differ in them and must share. Which fields of
vLLM's configuration were looked at, and why the others have no part, stands in `reviewed_fields`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from eccache.adapters.vllm.reviewed_fields import unreviewed_values
from eccache.adapters.vllm.weights_digest import model_digest
from eccache.adapters.vllm.weights_identity import WeightsIdentity, weights_identity

_DEVICE_KEYS: Final = frozenset({"device"})
"""Where a processor runs, not what it makes. vLLM sets it on a producer and not on its consumer."""
MEDIA_VARIABLES: Final = (
    "VLLM_MEDIA_CONNECTOR",
    "VLLM_USE_RUST_FRONTEND",
    "VLLM_VIDEO_LOADER_BACKEND",
)
"""vLLM's environment variables that choose who turns a file into pixels, frames or samples."""

QUANTIZATION_VARIABLES: Final = (
    "VLLM_HUMMING_INPUT_QUANT_CONFIG",
    "VLLM_HUMMING_ONLINE_QUANT_CONFIG",
    "VLLM_HUMMING_USE_F16_ACCUM",
    "VLLM_MARLIN_INPUT_DTYPE",
)
"""vLLM's environment variables that choose how weights, or what is multiplied with them, are quantized."""


@attrs.frozen
class ModelIdentity:
    """The model as its entries know it.

    Attributes:
        model: name or path, as in keys.
        encoder_dtype: torch's name of the dtype that the encoder runs in.
        ingredients: what must match for reuse, in words.
        unknown: what could not be told, and why; empty where everything could. Then nothing may be shared.
    """

    model: str
    encoder_dtype: str
    ingredients: Mapping[str, str]
    unknown: str = ""


@attrs.frozen(kw_only=True)
class _Server:
    """Where ingredients are read from."""

    model: Any
    multimodal: Any
    load: Any
    lora: Any
    whole: Any
    weights: WeightsIdentity
    vllm_version: str


@attrs.frozen
class Ingredient:
    """One thing that must match.

    Attributes:
        name: as an operator sees it.
        reason: how it changes an encoder output.
        read: returns its value, a text that is equal where the thing is.
    """

    name: str
    reason: str
    read: Callable[[_Server], str]


def model_identity(vllm_config: Any, *, vllm_version: str) -> ModelIdentity:
    """Return the identity of the model that vLLM was configured to serve.

    Args:
        vllm_config: vLLM's whole configuration.
        vllm_version: vLLM's version.
    """
    model = vllm_config.model_config
    weights = weights_identity(model, vllm_config.load_config)
    server = _Server(
        model=model,
        multimodal=model.multimodal_config,
        load=vllm_config.load_config,
        lora=vllm_config.lora_config,
        whole=vllm_config,
        weights=weights,
        vllm_version=vllm_version,
    )
    table = INGREDIENTS if server.multimodal is not None else TEXT_INGREDIENTS
    unknown = f"the weights: {weights.unknown}" if weights.unknown else ""
    if callable(model.hf_overrides):
        unknown = unknown or "hf_overrides: a function, whose effect has no name"
    return ModelIdentity(
        str(model.model),
        _dtype(model.dtype),
        {ingredient.name: ingredient.read(server) for ingredient in table},
        unknown,
    )


# --- reading -----------------------------------------------------------------------------------------


def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)


def _set(**values: Any) -> str:
    """Return those of *values* that are set to something; an empty text where none is."""
    present = {name: value for name, value in values.items() if value}
    return _canonical(present) if present else ""


def _revision(server: _Server) -> str:
    return _set(model=server.model.revision, code=server.model.code_revision)


def _weights(server: _Server) -> str:
    return server.weights.text


def _loading(server: _Server) -> str:
    return _set(format=server.load.load_format, extra=server.load.model_loader_extra_config)


def _implementation(server: _Server) -> str:
    model = server.model
    config = model.hf_config_path
    return _set(
        model_impl=str(model.model_impl),
        classes=model.model_class_overrides,
        remote_code=model.trust_remote_code,
        config_format=str(model.config_format),
        config=config and (model_digest(Path(config)) if Path(config).exists() else config),
        overrides=None if callable(model.hf_overrides) else model.hf_overrides,
        platform=_plain(server.whole.additional_config),
    )


def _plain(config: Any) -> Any:
    """Return a platform plugin's settings as something that has one text in every process."""
    return config.compute_hash() if hasattr(config, "compute_hash") else config


def _quantization(server: _Server) -> str:
    model = server.model
    return _set(
        method=model.quantization,
        config=model.quantization_config,
        **_variables(QUANTIZATION_VARIABLES),
    )


def _processor_kwargs(server: _Server) -> str:
    kwargs = server.multimodal.mm_processor_kwargs or {}
    kept = {key: value for key, value in kwargs.items() if key not in _DEVICE_KEYS}
    return _canonical(kept) if kept else ""


def _media_io(server: _Server) -> str:
    return _set(kwargs=server.multimodal.media_io_kwargs, **_variables(MEDIA_VARIABLES))


def _variables(names: Iterable[str]) -> dict[str, Any]:
    """Return what vLLM makes of its environment variables."""
    from vllm import envs

    return {name: getattr(envs, name, None) for name in names}


def _video_pruning(server: _Server) -> str:
    rate = server.multimodal.video_pruning_rate
    return f"{server.multimodal.video_pruning_method} {rate}" if rate else ""


def _encoder_attention(server: _Server) -> str:
    multimodal = server.multimodal
    scales = multimodal.mm_encoder_fp8_scale_path
    backend = multimodal.mm_encoder_attn_backend
    return _set(
        backend=backend and getattr(backend, "name", str(backend)),
        dtype=multimodal.mm_encoder_attn_dtype,
        scales=scales and hashlib.sha256(Path(scales).read_bytes()).hexdigest()[:32],
    )


def _encoder_split(server: _Server) -> str:
    ranks = int(server.whole.parallel_config.tensor_parallel_size)
    return "1" if server.multimodal.mm_encoder_tp_mode == "data" else str(ranks)


def _matmul_precision(_: _Server) -> str:
    from vllm import envs

    return str(getattr(envs, "VLLM_FLOAT32_MATMUL_PRECISION", "") or "")


def _tower_adapters(server: _Server) -> str:
    lora = server.lora
    if lora is None or not getattr(lora, "enable_tower_connector_lora", False):
        return ""
    return _set(dtype=_dtype(lora.lora_dtype), target_modules=sorted(lora.target_modules or ()))


def _versions(server: _Server) -> str:
    import transformers

    return f"{server.vllm_version}, transformers {transformers.__version__}"


def _unreviewed(server: _Server) -> str:
    configs = (server.model, server.multimodal, server.load, server.lora)
    return unreviewed_values(*(config for config in configs if config is not None))


TEXT_INGREDIENTS: Final = (
    Ingredient(
        "model", "Its name or path is hashed into every id.", lambda server: str(server.model.model)
    ),
    Ingredient("revision", "Another revision has other weights, or other code.", _revision),
    Ingredient(
        "weights",
        "The encoder computes with them: the hub's commit, or a digest of the folder.",
        _weights,
    ),
    Ingredient("loading", "Which of the folder's files are read, and what is added.", _loading),
    Ingredient("dtype", "The encoder computes in it.", lambda server: _dtype(server.model.dtype)),
    Ingredient("quantization", "The encoder may be quantized with the rest.", _quantization),
    Ingredient(
        "implementation",
        "Another class, configuration, override or platform setting is another encoder.",
        _implementation,
    ),
    Ingredient(
        "vllm",
        "Kernels, models and, with transformers, what makes pixels of media change with versions.",
        _versions,
    ),
)
"""What is asked of a model without an encoder: nothing is cached, but the doctor shows it."""

INGREDIENTS: Final = (
    *TEXT_INGREDIENTS,
    Ingredient(
        "processor_kwargs",
        "The server's own arguments of the processor: sizes, frames, crops; an id holds the request's.",
        _processor_kwargs,
    ),
    Ingredient(
        "media_io",
        "How files are decoded: frames, colours, who decodes; ids hold the file.",
        _media_io,
    ),
    Ingredient(
        "device_normalize",
        "Whether pixels are normalised by the encoder, in its precision.",
        lambda server: str(bool(getattr(server.multimodal, "mm_device_do_normalize", False))),
    ),
    Ingredient(
        "video_pruning", "Rows are left out of the output, and others added.", _video_pruning
    ),
    Ingredient("encoder_attention", "A back end, a precision and its scales.", _encoder_attention),
    Ingredient(
        "encoder_split",
        "Ranks that each layer is split over: sums are rounded in another order. Measured: "
        "docs/adr/0061.",
        _encoder_split,
    ),
    Ingredient("matmul_precision", "How precisely float32 encoders multiply.", _matmul_precision),
    Ingredient(
        "tower_adapters", "Layers that adapters can change are other layers.", _tower_adapters
    ),
    Ingredient(
        "hasher",
        "Ids and content digests are made with it; one algorithm's say nothing of another's.",
        lambda server: str(server.multimodal.mm_hasher_algorithm),
    ),
    Ingredient(
        "unreviewed", "Set in fields of a newer vLLM that nobody has looked at yet.", _unreviewed
    ),
)
"""Everything that is asked, in the order of the docs. The operator's `epoch` and the format's version
join these in `domain.namespace`."""
