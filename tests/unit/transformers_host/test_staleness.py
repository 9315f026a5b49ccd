"""Whatever changes what an encoder would return is seen: no stale hit."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host import models
from tests.unit.transformers_host.models import made, pixels

Cache = ECCacheEngine[torch.Tensor]


def features(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:  # noqa: ANN401
    """What the model's encoder returns, as one tensor."""
    found = model.base_model.get_image_features(**inputs).pooler_output
    return found if isinstance(found, torch.Tensor) else torch.cat(list(found))


def a_weight(model: Any) -> torch.nn.Parameter:  # noqa: ANN401
    """Some weight of a CLIP's tower."""
    weight: torch.nn.Parameter = model.vision_model.encoder.layers[0].mlp.fc1.weight
    return weight


def grow(tensor: torch.Tensor) -> None:
    """Change a tensor in place, as an optimizer does."""
    tensor.mul_(1.5)


def load(model: Any, *, assign: bool) -> None:  # noqa: ANN401
    """Load other weights."""
    model.load_state_dict(made(models.clip, seed=1).state_dict(), assign=assign)


def set_config(model: Any) -> None:  # noqa: ANN401
    """Change how attention is computed."""
    model.set_attn_implementation("eager")


def set_attribute(model: Any) -> None:  # noqa: ANN401
    """Change a number that a module computes with."""
    model.vision_model.post_layernorm.eps = 0.5


def replace_module(model: Any) -> None:  # noqa: ANN401
    """Put another module in a module's place."""
    model.vision_model.post_layernorm = torch.nn.Identity().eval()


def optimize(model: Any) -> None:  # noqa: ANN401
    """Let an optimizer make one step."""
    weight = a_weight(model)
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()
    weight.grad = None


def change_one_element(model: Any) -> None:  # noqa: ANN401
    """Change an element that is none of those sampled."""
    a_weight(model)[0, 1] += 100


CHANGES: dict[str, Callable[[Any], None]] = {
    "in place": lambda model: grow(a_weight(model)),
    "one element": change_one_element,
    "through .data": lambda model: grow(a_weight(model).data),
    "through numpy": lambda model: grow(torch.from_numpy(a_weight(model).detach().numpy())),
    "a replaced .data": lambda model: setattr(a_weight(model), "data", a_weight(model).data * 1.5),
    "an optimizer": optimize,
    "load_state_dict": lambda model: load(model, assign=False),
    "load_state_dict, assigned": lambda model: load(model, assign=True),
    "another dtype": lambda model: model.to(torch.bfloat16),
    "attention": set_config,
    "a number": set_attribute,
    "a module": replace_module,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_model_gets_no_stale_output(change: Callable[[Any], None], cache: Cache) -> None:
    """After any change the outputs are those of the model as it is now, also the second time."""
    model = made(models.clip)
    inputs = pixels(1)
    with cached_encoder(model, cache) as encoder:
        before = features(model, inputs)
        cache.flush()
        assert torch.equal(before, features(model, inputs))
        change(model)
        changed = [features(model, inputs)]
        cache.flush()
        changed.append(features(model, inputs))
    expected = features(model, inputs)
    assert all(expected.dtype == found.dtype for found in changed)
    assert all(torch.equal(expected, found) for found in changed)
    assert (2, 2, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_a_changed_list_gets_no_stale_output(cache: Cache) -> None:
    """Settings that a module holds as a list count too: which layers attend to everything."""
    model = made(models.qwen2_5_vl)
    inputs = models.patches((1, 8, 16))
    with cached_encoder(model, cache):
        before = features(model, inputs)
        cache.flush()
        model.model.visual.fullatt_block_indexes = [0, 1]
        found = features(model, inputs)
    expected = features(model, inputs)
    assert not torch.equal(before, expected)
    assert torch.equal(expected, found)


def test_weights_changed_back_are_known_again(cache: Cache) -> None:
    """It is the content that counts, not the history."""
    model = made(models.clip)
    inputs = pixels(1)
    weight = a_weight(model)
    original = weight.detach().clone()
    with cached_encoder(model, cache) as encoder:
        first = features(model, inputs)
        weight.zero_()
        features(model, inputs)
        weight.copy_(original)
        cache.flush()
        assert torch.equal(first, features(model, inputs))
    assert (1, 2) == (encoder.stats().hits, encoder.stats().misses)


def test_a_single_element_changed_behind_torch_is_seen_after_refresh(cache: Cache) -> None:
    """What no count and no sample shows, the caller can say."""
    model = made(models.clip)
    inputs = pixels(1)
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
        cache.flush()
        a_weight(model).data[0, 1] += 100  # neither a count nor a sampled element
        assert torch.equal(features(model, inputs), features(model, inputs))
        assert 0 == encoder.stats().hits - 2
        encoder.refresh()
        found = features(model, inputs)
    assert (2, 2) == (encoder.stats().hits, encoder.stats().misses)
    assert torch.equal(features(model, inputs), found)


@pytest.mark.parametrize("modules", ["text_model", "language_model"])
def test_the_text_side_may_change(modules: str, cache: Cache) -> None:
    """Training a language model costs no entry of its frozen encoder."""
    make, inputs = {
        "text_model": (models.clip, pixels(1)),
        "language_model": (models.qwen2_5_vl, models.patches((1, 4, 4))),
    }[modules]
    model = made(make)
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
        cache.flush()
        for weight in getattr(model.base_model, modules).parameters():
            weight.mul_(2)
        features(model, inputs)
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)


def copied(model: Any) -> Any:  # noqa: ANN401
    """A deep copy."""
    return copy.deepcopy(model)


def pickled(model: Any) -> Any:  # noqa: ANN401
    """A copy by way of bytes."""
    return pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes


def saved(model: Any) -> Any:  # noqa: ANN401
    """A copy by way of torch's files."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("make", [models.clip, models.qwen2_5_vl], ids=["owner", "child"])
@pytest.mark.parametrize("duplicate", [copied, pickled, saved])
def test_a_copy_of_a_model_answers_for_itself(
    make: Callable[[], Any], duplicate: Callable[[Any], Any], cache: Cache
) -> None:
    """A copy has the model's own method, so its answers follow its own weights."""
    model = made(make)
    inputs = pixels(1) if make is models.clip else models.patches((1, 4, 4))
    with cached_encoder(model, cache) as encoder:
        original = features(model, inputs)
        cache.flush()
        twin = duplicate(model)
        assert torch.equal(original, features(twin, inputs))
        assert (0, 1) == (encoder.stats().hits, encoder.stats().misses)
        for weight in twin.parameters():
            weight.mul_(3)
        assert not torch.equal(original, features(twin, inputs))
        assert torch.equal(original, features(model, inputs))
        again = duplicate(twin)
        assert torch.equal(features(twin, inputs), features(again, inputs))
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)
    assert not torch.equal(original, features(twin, inputs))


def test_autocast_has_entries_of_its_own(cache: Cache) -> None:
    """An entry made without autocast is not served under it, nor the other way round."""
    model = made(models.clip)
    inputs = pixels(1)
    plain = features(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        cast = features(model, inputs)
    assert plain.dtype != cast.dtype
    with cached_encoder(model, cache) as encoder:
        for _ in range(2):
            assert torch.equal(plain, features(model, inputs))
            with torch.autocast("cpu", torch.bfloat16):
                found = features(model, inputs)
            assert cast.dtype == found.dtype
            assert torch.equal(cast, found)
            cache.flush()
    assert (2, 2) == (encoder.stats().hits, encoder.stats().misses)


def test_switches_of_torch_have_entries_of_their_own(cache: Cache) -> None:
    """What decides over kernels is part of what has to be equal."""
    model = made(models.clip)
    inputs = pixels(1)
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
        cache.flush()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            features(model, inputs)
        torch.use_deterministic_algorithms(mode=True)
        try:
            features(model, inputs)
        finally:
            torch.use_deterministic_algorithms(mode=False)
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            features(model, inputs)
        finally:
            torch.set_float32_matmul_precision(before)
        features(model, inputs)
    assert (1, 4) == (encoder.stats().hits, encoder.stats().misses)


def test_the_same_patches_in_another_grid_are_another_item(cache: Cache) -> None:
    """Shape is content: 8 by 16 is not 16 by 8."""
    model = made(models.qwen2_5_vl)
    wide = models.patches((1, 8, 16))
    tall = {**wide, "image_grid_thw": torch.tensor([[1, 16, 8]])}
    expected = [features(model, wide), features(model, tall)]
    assert not torch.equal(*expected)
    with cached_encoder(model, cache):
        for _ in range(2):
            assert torch.equal(expected[0], features(model, wide))
            assert torch.equal(expected[1], features(model, tall))
            cache.flush()


def test_one_cache_serves_many_models(cache: Cache) -> None:
    """Two models of one kind share a cache and no entry, unless they are equal."""
    inputs = pixels(1)
    twins = [made(models.clip, seed=0), made(models.clip, seed=1), made(models.clip, seed=0)]
    expected = [features(model, inputs) for model in twins]
    stats = []
    for model, value in zip(twins, expected, strict=True):
        with cached_encoder(model, cache) as encoder:
            assert torch.equal(value, features(model, inputs))
            cache.flush()
        stats.append((encoder.stats().hits, encoder.stats().misses))
    assert [(0, 1), (0, 1), (1, 0)] == stats


def test_image_and_video_of_equal_bytes_are_two_items(cache: Cache) -> None:
    """The method is part of the id."""
    model = made(models.qwen2_5_vl)
    image = models.patches((1, 4, 4))
    with cached_encoder(model, cache) as encoder:
        model.model.get_image_features(**image)
        cache.flush()
        model.model.get_video_features(image["pixel_values"], image["image_grid_thw"])
    assert (0, 2) == (encoder.stats().hits, encoder.stats().misses)


def test_two_methods_of_one_module_are_two_encoders(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of one method is never served by another one, however alike their arguments are."""
    tower = made(models.clip).vision_model

    def doubled(  # arguments and defaults as in forward
        self: Any,  # noqa: ANN401
        pixel_values: torch.Tensor,
        interpolate_pos_encoding: bool | None = False,  # noqa: FBT001, FBT002
        **kwargs: object,
    ) -> Any:  # noqa: ANN401
        output = self(pixel_values)
        output.pooler_output = output.pooler_output * 2
        return output

    monkeypatch.setattr(type(tower), "get_image_features", doubled, raising=False)
    inputs = pixels(2)
    with cached_encoder(tower, cache, towers=[""]):
        stock = tower(**inputs).pooler_output
    cache.flush()
    with cached_encoder(tower, cache):
        assert torch.equal(stock * 2, tower.get_image_features(**inputs).pooler_output)
