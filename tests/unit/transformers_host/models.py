"""Tiny models of the real architectures, with random weights that follow from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
import transformers

PATCH_WIDTH = 3 * 2 * 4 * 4
_TEXT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "max_position_embeddings": 512,
}
_VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 4,
    "projection_dim": 24,
}
_MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
_QWEN_IDS = {
    "image_token_id": 60,
    "video_token_id": 61,
    "vision_start_token_id": 62,
    "vision_end_token_id": 63,
}
_QWEN_VIT = {
    "depth": 2,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
}


def qwen2_5_vl() -> transformers.PreTrainedModel:
    """Patches of all images in one tensor, a grid, windowed attention."""
    vision = {
        **_QWEN_VIT,
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 32,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    }
    text = {**_TEXT, "rope_parameters": _MROPE}
    return transformers.Qwen2_5_VLForConditionalGeneration(
        transformers.Qwen2_5_VLConfig(vision_config=vision, text_config=text, **_QWEN_IDS)
    )


def qwen2_vl() -> transformers.PreTrainedModel:
    """The model before it."""
    vision = {**_QWEN_VIT, "embed_dim": 32, "hidden_size": 32}
    text = {**_TEXT, "rope_parameters": _MROPE}
    return transformers.Qwen2VLForConditionalGeneration(
        transformers.Qwen2VLConfig(vision_config=vision, text_config=text, **_QWEN_IDS)
    )


def qwen3_vl() -> transformers.PreTrainedModel:
    """The model after it: features of inner layers are part of the output."""
    vision = {
        **_QWEN_VIT,
        "hidden_size": 32,
        "intermediate_size": 48,
        "out_hidden_size": 32,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    }
    text = {
        **_TEXT,
        "num_hidden_layers": 2,
        "rope_parameters": {**_MROPE, "mrope_interleaved": True},
    }
    return transformers.Qwen3VLForConditionalGeneration(
        transformers.Qwen3VLConfig(vision_config=vision, text_config=text, **_QWEN_IDS)
    )


def clip() -> transformers.PreTrainedModel:
    """One vector for each image; the model itself has the method."""
    text = {**_TEXT, "projection_dim": 24}
    return transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=_VIT, projection_dim=24)
    )


def siglip() -> transformers.PreTrainedModel:
    """The same, pooled by attention."""
    return transformers.SiglipModel(
        transformers.SiglipConfig(text_config={**_TEXT, "projection_size": 32}, vision_config=_VIT)
    )


def llava() -> transformers.PreTrainedModel:
    """A list of images' features, from an inner layer of a CLIP tower."""
    return transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(
            vision_config=transformers.CLIPVisionConfig(**_VIT),
            text_config=transformers.LlamaConfig(**_TEXT),
            image_token_index=60,
            image_token_id=60,
        )
    )


def llava_next() -> transformers.PreTrainedModel:
    """Several tiles of each image, in a tensor of five dimensions."""
    return transformers.LlavaNextForConditionalGeneration(
        transformers.LlavaNextConfig(
            vision_config=transformers.CLIPVisionConfig(**_VIT),
            text_config=transformers.LlamaConfig(**_TEXT),
            image_grid_pinpoints=[[16, 32], [32, 16]],
            image_token_index=60,
            image_token_id=60,
        )
    )


def gemma3() -> transformers.PreTrainedModel:
    """A tensor `[images, tokens, width]`."""
    return transformers.Gemma3ForConditionalGeneration(
        transformers.Gemma3Config(
            vision_config=transformers.SiglipVisionConfig(**_VIT, vision_use_head=False),
            text_config=transformers.Gemma3TextConfig(
                **{**_TEXT, "layer_types": ["full_attention"]}
            ),
            mm_tokens_per_image=4,
            image_token_index=60,
        )
    )


def paligemma() -> transformers.PreTrainedModel:
    """The same, without pooling."""
    return transformers.PaliGemmaForConditionalGeneration(
        transformers.PaliGemmaConfig(
            vision_config=transformers.SiglipVisionConfig(**_VIT, vision_use_head=False),
            text_config=transformers.GemmaConfig(**_TEXT),
            projection_dim=32,
            image_token_index=60,
        )
    )


def emu3() -> transformers.PreTrainedModel:
    """A model whose image features are rows of the language model's own embedding."""
    vq = {
        "codebook_size": 16,
        "base_channels": 32,
        "channel_multiplier": [1, 1],
        "num_res_blocks": 1,
        "attn_resolutions": [],
        "hidden_size": 32,
    }
    tokens = {f"<|visual token {number:06d}|>": 20 + number for number in range(16)}
    return transformers.Emu3ForConditionalGeneration(
        transformers.Emu3Config(
            vq_config=vq,
            text_config=_TEXT,
            vocabulary_map={**tokens, "<image>": 60, "<|extra_200|>": 61},
        )
    )


def whisper() -> transformers.PreTrainedModel:
    """Speech to text; the encoder is a module that generate calls."""
    return transformers.WhisperForConditionalGeneration(
        transformers.WhisperConfig(
            vocab_size=64,
            d_model=32,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            num_mel_bins=8,
            max_source_positions=16,
            max_target_positions=32,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=3,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )


def qwen2_audio() -> transformers.PreTrainedModel:
    """A language model that hears, without a method for it."""
    return transformers.Qwen2AudioForConditionalGeneration(
        transformers.Qwen2AudioConfig(
            audio_config={
                "num_mel_bins": 8,
                "encoder_layers": 2,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 48,
                "d_model": 32,
                "max_source_positions": 16,
            },
            text_config={**_TEXT, "model_type": "qwen2"},
            audio_token_index=60,
        )
    )


@attrs.frozen
class Host:
    """A model and how its encoder is asked.

    Attributes:
        make: makes the model; the caller seeds.
        tower: name of the module of which each forward call is a run of the encoder.
        encode: runs the encoder the way the model does.
        items: makes inputs of so many items.
        value: what a caller uses of the output.
    """

    make: Callable[[], transformers.PreTrainedModel]
    tower: str
    encode: Callable[..., Any]
    items: Callable[[int], dict[str, torch.Tensor]]
    value: Callable[[Any], list[torch.Tensor]]


def patches(*grids: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    """Images for Qwen, by their grids."""
    grid = torch.tensor(grids)
    return {
        "pixel_values": torch.randn(int(grid.prod(-1).sum()), PATCH_WIDTH),
        "image_grid_thw": grid,
    }


def _videos(count: int) -> dict[str, torch.Tensor]:
    images = patches(*[(2, 4, 4 + 2 * place) for place in range(count)])
    return {
        "pixel_values_videos": images["pixel_values"],
        "video_grid_thw": images["image_grid_thw"],
    }


def _grids(count: int) -> dict[str, torch.Tensor]:
    return patches(*[(1, 8, 8 + 4 * place) for place in range(count)])


def pixels(count: int) -> dict[str, torch.Tensor]:
    """Images for a plain ViT."""
    return {"pixel_values": torch.randn(count, 3, 16, 16)}


def _mel(count: int) -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(count, 8, 32)}


def _pooled(output: Any) -> list[torch.Tensor]:  # noqa: ANN401 - any model's output
    return list(output.pooler_output)


def _deep(output: Any) -> list[torch.Tensor]:  # noqa: ANN401 - the same
    return [*output.pooler_output, *(one for layer in output.deepstack_features for one in layer)]


def _hidden(output: Any) -> list[torch.Tensor]:  # noqa: ANN401 - the same
    return list(output.last_hidden_state)


def _image_features(model: Any, **inputs: torch.Tensor) -> Any:  # noqa: ANN401 - the same
    return model.base_model.get_image_features(**inputs)


def _video_features(model: Any, **inputs: torch.Tensor) -> Any:  # noqa: ANN401 - the same
    return model.base_model.get_video_features(**inputs)


HOSTS = {
    "qwen2_5_vl": Host(qwen2_5_vl, "model.visual", _image_features, _grids, _pooled),
    "qwen2_5_vl-video": Host(qwen2_5_vl, "model.visual", _video_features, _videos, _pooled),
    "qwen2_vl": Host(qwen2_vl, "model.visual", _image_features, _grids, _pooled),
    "qwen2_vl-video": Host(qwen2_vl, "model.visual", _video_features, _videos, _pooled),
    "qwen3_vl": Host(qwen3_vl, "model.visual", _image_features, _grids, _deep),
    "qwen3_vl-video": Host(qwen3_vl, "model.visual", _video_features, _videos, _deep),
    "clip": Host(clip, "vision_model", _image_features, pixels, _pooled),
    "siglip": Host(siglip, "vision_model", _image_features, pixels, _pooled),
    "llava": Host(llava, "model.vision_tower", _image_features, pixels, _pooled),
    "gemma3": Host(gemma3, "model.vision_tower", _image_features, pixels, _pooled),
    "paligemma": Host(paligemma, "model.vision_tower", _image_features, pixels, _pooled),
    "whisper": Host(
        whisper,
        "model.encoder.layers.0",
        lambda model, **inputs: model.get_encoder()(**inputs),
        _mel,
        _hidden,
    ),
    "qwen2_audio": Host(
        qwen2_audio,
        "model.audio_tower.layers.0",
        lambda model, **inputs: model.model.audio_tower(**inputs),
        _mel,
        _hidden,
    ),
}
"""Every architecture whose items are known to be independent."""


def made(make: Callable[[], transformers.PreTrainedModel], seed: int = 0) -> Any:  # noqa: ANN401
    """Return a model in evaluation mode, with the weights of *seed*."""
    torch.manual_seed(seed)
    return make().eval()
