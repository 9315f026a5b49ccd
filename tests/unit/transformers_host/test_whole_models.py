"""Whole models answer as they do without a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host import models
from tests.unit.transformers_host.models import HOSTS, made, patches

CountRuns = Callable[[torch.nn.Module, str], list[int]]
Cache = ECCacheEngine[torch.Tensor]


def qwen_request() -> dict[str, torch.Tensor]:
    """A prompt with one image of 8 by 16 patches."""
    ids = torch.tensor([[5, 62, *[60] * 32, 63, 6]])
    image = patches((1, 8, 16))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == 60).int(),
        **image,
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl"])
def test_a_vision_language_model_generates_the_same(
    name: str, dtype: torch.dtype, cache: Cache, count_runs: CountRuns
) -> None:
    """Logits and generated ids are equal bit for bit, computed or served, by forward and by generate."""
    model = made(HOSTS[name].make).to(dtype)
    request = qwen_request()
    logits = model(**request).logits
    ids = model.generate(**request, max_new_tokens=4, do_sample=False)
    runs = count_runs(model, "model.visual")
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            assert torch.equal(logits, model(**request).logits)
            cache.flush()
            assert torch.equal(ids, model.generate(**request, max_new_tokens=4, do_sample=False))
    assert 1 == runs[0]
    assert (3, 1, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_several_answers_to_one_image(cache: Cache) -> None:
    """The model changes the output that it is given; that changes no entry."""
    model = made(models.qwen2_5_vl)
    request = qwen_request()
    more: dict[str, Any] = {"max_new_tokens": 3, "num_beams": 2, "num_return_sequences": 2}
    ids = model.generate(**request, **more)
    with cached_encoder(model, cache):
        for _ in range(2):
            assert torch.equal(ids, model.generate(**request, **more))
            cache.flush()


def test_clip_compares_pictures_and_texts_the_same(cache: Cache) -> None:
    """Similarities are equal bit for bit."""
    model = made(models.clip)
    request = {"input_ids": torch.tensor([[1, 7, 2]]), **models.pixels(1)}
    expected = model(**request).logits_per_image
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            assert torch.equal(expected, model(**request).logits_per_image)
            cache.flush()
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)


def test_whisper_transcribes_the_same(cache: Cache, count_runs: CountRuns) -> None:
    """Generating enters the encoder as a module; its output is equal and the encoder runs once."""
    model = made(models.whisper)
    mel = torch.randn(1, 8, 32)
    expected = model.generate(input_features=mel, max_new_tokens=4, do_sample=False)
    runs = count_runs(model, "model.encoder.layers.0")
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            found = model.generate(input_features=mel, max_new_tokens=4, do_sample=False)
            assert torch.equal(expected, found)
            cache.flush()
    assert 1 == runs[0]
    assert (1, 1, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_a_model_that_hears_answers_the_same(cache: Cache, count_runs: CountRuns) -> None:
    """A model without a method for audio has its tower wrapped."""
    model = made(models.qwen2_audio)
    request = {
        "input_ids": torch.tensor([[5, *[60] * 8, 6]]),
        "attention_mask": torch.ones(1, 10, dtype=torch.long),
        "input_features": torch.randn(1, 8, 32),
        "feature_attention_mask": torch.ones(1, 32, dtype=torch.long),
    }
    expected = model(**request).logits
    runs = count_runs(model, "model.audio_tower.layers.0")
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            assert torch.equal(expected, model(**request).logits)
            cache.flush()
    assert 1 == runs[0]
    assert (1, 1, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_hidden_states_of_the_language_model_are_those_without_a_cache(cache: Cache) -> None:
    """Asking the whole model for its inner values gets all of them."""
    model = made(models.qwen2_5_vl)
    request = qwen_request()
    expected = model(**request, output_hidden_states=True).hidden_states
    with cached_encoder(model, cache):
        model(**request)
        cache.flush()
        found = model(**request, output_hidden_states=True).hidden_states
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_tiles_of_an_image_are_cached_as_a_whole_call(cache: Cache, count_runs: CountRuns) -> None:
    """What is known to divide is divided; LLaVA-NeXT's tiles are not, and come back all the same."""
    model = made(models.llava_next)
    inputs = {
        "pixel_values": torch.randn(2, 3, 3, 16, 16),
        "image_sizes": torch.tensor([[16, 32], [32, 16]]),
    }
    expected = model.model.get_image_features(**inputs).pooler_output
    runs = count_runs(model, "model.vision_tower")
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            found = model.model.get_image_features(**inputs).pooler_output
            assert type(expected) is type(found)
            assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
            cache.flush()
    assert 1 == runs[0]
    assert (1, 1, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_an_attention_mask_of_the_audio_tower_is_divided_with_the_clips(
    implementation: str, cache: Cache
) -> None:
    """Of two clips with silence at their ends, each has its own mask in its id."""
    model = made(models.qwen2_audio)
    model.set_attn_implementation(implementation)
    mask = torch.ones(2, 32, dtype=torch.long)
    mask[1, 12:] = 0
    lengths = [8, 3]
    request = {
        "input_ids": torch.tensor([[5, *[60] * 8, 6], [0, 0, 0, 0, 0, 5, *[60] * 3, 6]]),
        "attention_mask": torch.tensor([[1] * 10, [0] * 5 + [1] * 5]),
        "input_features": torch.randn(2, 8, 32),
        "feature_attention_mask": mask,
    }
    assert lengths == (request["input_ids"] == 60).sum(-1).tolist()
    expected = model(**request).logits
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            torch.testing.assert_close(expected, model(**request).logits)
            cache.flush()
    assert (2, 2, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)
