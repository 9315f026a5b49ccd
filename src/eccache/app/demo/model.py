"""A small Qwen2.5-VL with random weights, built offline in about a second.

The real architecture, tokenizer, chat template and processors at a size a CPU can serve: what is
measured with it is real serving, only the answers mean nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from eccache.app.demo import tokenizer
from eccache.app.demo.weights import WEIGHT_SEED, write_weights

IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)
"""Published normalisation of the CLIP image encoder, which Qwen2.5-VL uses."""


@attrs.frozen(kw_only=True)
class ModelSize:
    """Widths, depths and input limits of a Qwen2.5-VL.

    vLLM's CPU attention wants text heads of at least 32 values, and tensor parallelism divides the
    head counts.
    """

    vision_layers: int = attrs.field(validator=attrs.validators.ge(1))
    vision_width: int = attrs.field(validator=attrs.validators.ge(1))
    vision_heads: int = attrs.field(validator=attrs.validators.ge(1))
    text_layers: int = attrs.field(validator=attrs.validators.ge(1))
    text_heads: int = attrs.field(validator=attrs.validators.ge(1))
    text_key_value_heads: int = attrs.field(validator=attrs.validators.ge(1))
    text_head_width: int = attrs.field(default=64, validator=attrs.validators.ge(32))
    min_pixels: int = 56 * 56
    max_pixels: int = 224 * 224
    patch: int = 14
    temporal_patch: int = 2
    merge: int = 2
    seed: int = WEIGHT_SEED

    @property
    def text_width(self) -> int:
        """Hidden size of the language model, and of one row of an encoder output."""
        return self.text_heads * self.text_head_width

    @property
    def text_inner_width(self) -> int:
        """Width of the language model's feed-forward layers."""
        return 3 * self.text_width

    @property
    def vision_inner_width(self) -> int:
        """Width of the vision encoder's feed-forward layers."""
        return 3 * self.vision_width


TINY = ModelSize(
    vision_layers=2,
    vision_width=64,
    vision_heads=2,
    text_layers=2,
    text_heads=2,
    text_key_value_heads=2,
)
"""For tests: quick to start, and its answers still depend on the picture."""

DEMO = ModelSize(
    vision_layers=16,
    vision_width=512,
    vision_heads=8,
    text_layers=4,
    text_heads=8,
    text_key_value_heads=4,
)
"""For the demo: encoding takes a CPU about as long as a large model takes an accelerator."""


@attrs.frozen
class BuiltModel:
    """A model folder on disk."""

    directory: Path
    parameters: int


def build_model(directory: Path, size: ModelSize) -> BuiltModel:
    """Write a complete model folder that vLLM and transformers load without a network.

    The same *size* gives the same bytes on every machine with the same torch.

    Args:
        directory: Folder to create or refill.
        size: `TINY`, `DEMO` or your own.

    Returns:
        The folder and the number of parameters.
    """
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = tokenizer.write_tokenizer(directory)
    # A multiple of 64 divides among tensor-parallel ranks without padding.
    vocabulary_size = -(-len(vocabulary) // 64) * 64
    _write_json(directory / "config.json", _config(size, vocabulary, vocabulary_size))
    processor = _processor_settings(size)
    _write_json(
        directory / "preprocessor_config.json",
        processor | {"image_processor_type": "Qwen2VLImageProcessor"},
    )
    _write_json(
        directory / "video_preprocessor_config.json",
        processor | {"video_processor_type": "Qwen2VLVideoProcessor"},
    )
    parameters = write_weights(
        directory, size, vocabulary_size, tokenizer.speakable_ids(vocabulary)
    )
    return BuiltModel(directory=directory, parameters=parameters)


def _config(size: ModelSize, vocabulary: dict[str, int], vocabulary_size: int) -> dict[str, Any]:
    quarter = size.text_head_width // 8
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary_size,
        "hidden_size": size.text_width,
        "intermediate_size": size.text_inner_width,
        "num_hidden_layers": size.text_layers,
        "num_attention_heads": size.text_heads,
        "num_key_value_heads": size.text_key_value_heads,
        "hidden_act": "silu",
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        # temporal, height and width share half a head: 1/4, 3/8, 3/8 of it, as published
        "rope_scaling": {
            "type": "mrope",
            "mrope_section": [quarter, quarter * 3 // 2, quarter * 3 // 2],
        },
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "bos_token_id": vocabulary[tokenizer.END_OF_TEXT],
        "eos_token_id": vocabulary[tokenizer.TURN_END],
        "pad_token_id": vocabulary[tokenizer.END_OF_TEXT],
        "image_token_id": vocabulary[tokenizer.IMAGE_PAD],
        "video_token_id": vocabulary[tokenizer.VIDEO_PAD],
        "vision_start_token_id": vocabulary[tokenizer.VISION_START],
        "vision_end_token_id": vocabulary[tokenizer.VISION_END],
        "vision_token_id": vocabulary[tokenizer.VISION_PAD],
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": size.vision_layers,
            "hidden_size": size.vision_width,
            "intermediate_size": size.vision_inner_width,
            "num_heads": size.vision_heads,
            "out_hidden_size": size.text_width,
            "hidden_act": "silu",
            "in_channels": 3,
            "patch_size": size.patch,
            "spatial_patch_size": size.patch,
            "spatial_merge_size": size.merge,
            "temporal_patch_size": size.temporal_patch,
            "tokens_per_second": 2,
            "window_size": 8 * size.patch,
            # the last layer of each quarter sees the whole picture, the others a window of it
            "fullatt_block_indexes": sorted(
                {max(0, size.vision_layers * n // 4 - 1) for n in range(1, 5)}
            ),
        },
    }


def _processor_settings(size: ModelSize) -> dict[str, Any]:
    return {
        "processor_class": "Qwen2_5_VLProcessor",
        "min_pixels": size.min_pixels,
        "max_pixels": size.max_pixels,
        "size": {"shortest_edge": size.min_pixels, "longest_edge": size.max_pixels},
        "patch_size": size.patch,
        "temporal_patch_size": size.temporal_patch,
        "merge_size": size.merge,
        "image_mean": list(IMAGE_MEAN),
        "image_std": list(IMAGE_STD),
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
