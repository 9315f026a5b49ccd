"""Random weights in the layout of a published Qwen2.5-VL checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eccache.app.demo.model import ModelSize

WEIGHT_SEED = 20260

GAINS = {"q_proj.weight": 3.0, "k_proj.weight": 3.0, "o_proj.weight": 2.0}
"""Sharper attention of the language model than random weights have, which would average everything: with
these, pictures that differ get answers that differ within a few tokens."""


def _vision_shapes(size: ModelSize) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, inner = size.vision_width, size.vision_inner_width
    merged = width * size.merge**2
    yield "visual.patch_embed.proj.weight", (width, 3, size.temporal_patch, size.patch, size.patch)
    for layer in range(size.vision_layers):
        block = f"visual.blocks.{layer}"
        yield f"{block}.norm1.weight", (width,)
        yield f"{block}.norm2.weight", (width,)
        yield f"{block}.attn.qkv.weight", (3 * width, width)
        yield f"{block}.attn.qkv.bias", (3 * width,)
        yield f"{block}.attn.proj.weight", (width, width)
        yield f"{block}.attn.proj.bias", (width,)
        for name, shape in (
            ("gate_proj", (inner, width)),
            ("up_proj", (inner, width)),
            ("down_proj", (width, inner)),
        ):
            yield f"{block}.mlp.{name}.weight", shape
            yield f"{block}.mlp.{name}.bias", shape[:1]
    yield "visual.merger.ln_q.weight", (width,)
    yield "visual.merger.mlp.0.weight", (merged, merged)
    yield "visual.merger.mlp.0.bias", (merged,)
    yield "visual.merger.mlp.2.weight", (size.text_width, merged)
    yield "visual.merger.mlp.2.bias", (size.text_width,)


def _text_shapes(size: ModelSize, vocabulary_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, inner = size.text_width, size.text_inner_width
    key_width = size.text_key_value_heads * size.text_head_width
    yield "model.embed_tokens.weight", (vocabulary_size, width)
    for layer in range(size.text_layers):
        block = f"model.layers.{layer}"
        yield f"{block}.input_layernorm.weight", (width,)
        yield f"{block}.post_attention_layernorm.weight", (width,)
        for name, rows in (("q_proj", width), ("k_proj", key_width), ("v_proj", key_width)):
            yield f"{block}.self_attn.{name}.weight", (rows, width)
            yield f"{block}.self_attn.{name}.bias", (rows,)
        yield f"{block}.self_attn.o_proj.weight", (width, width)
        yield f"{block}.mlp.gate_proj.weight", (inner, width)
        yield f"{block}.mlp.up_proj.weight", (inner, width)
        yield f"{block}.mlp.down_proj.weight", (width, inner)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (vocabulary_size, width)


def write_weights(
    directory: Path, size: ModelSize, vocabulary_size: int, speakable: list[int]
) -> int:
    """Draw every weight from one seeded generator and write `model.safetensors`.

    Matrices are scaled by the square root of their fan-in, so that a difference between two pictures
    survives all layers and reaches the answer. The output layer is zero outside *speakable*: such a
    token is never the most likely.

    Args:
        directory: Folder of the model; it exists.
        size: Widths and depths.
        vocabulary_size: Rows of the embedding and of the output layer.
        speakable: Token ids that the model may answer with.

    Returns:
        The number of parameters.
    """
    import torch
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(size.seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in (*_vision_shapes(size), *_text_shapes(size, vocabulary_size)):
        if len(shape) == 1:
            value = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        else:
            fan_in = 1 if name == "model.embed_tokens.weight" else value_count(shape[1:])
            gain = next((gain for end, gain in GAINS.items() if name.endswith(end)), 1.0)
            value = torch.randn(shape, generator=generator) * gain / fan_in**0.5
        tensors[name] = value.to(torch.bfloat16)
    mute = torch.ones(vocabulary_size, dtype=torch.bool)
    mute[speakable] = False
    tensors["lm_head.weight"][mute] = 0
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return sum(tensor.numel() for tensor in tensors.values())


def value_count(shape: tuple[int, ...]) -> int:
    """Number of values in a tensor of *shape*."""
    count = 1
    for length in shape:
        count *= length
    return count
