"""What can't be served safely goes to the model as it stands, is counted by reason, and is not stored."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import output_capturing

from eccache.adapters.transformers import Bypass
from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host import models
from tests.unit.transformers_host.models import made, patches, pixels

Cache = ECCacheEngine[torch.Tensor]
CountRuns = Callable[[torch.nn.Module, str], list[int]]


def a_tower_layer(model: Any) -> torch.nn.Module:  # noqa: ANN401
    """A module deep in CLIP's tower."""
    layer: torch.nn.Module = model.vision_model.encoder.layers[0].mlp
    return layer


@contextlib.contextmanager
def hooked(register: str, model: Any) -> Iterator[None]:  # noqa: ANN401
    """A hook on a module inside the tower."""
    handle = getattr(a_tower_layer(model), register)(lambda *_: None)
    yield
    handle.remove()


@contextlib.contextmanager
def hooked_everywhere(_: object) -> Iterator[None]:
    """A hook on every module there is."""
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    yield
    handle.remove()


@contextlib.contextmanager
def training(model: Any) -> Iterator[None]:  # noqa: ANN401
    """One module of the tower trains."""
    a_tower_layer(model).train()
    yield
    a_tower_layer(model).eval()


@contextlib.contextmanager
def with_adapter(model: Any) -> Iterator[None]:  # noqa: ANN401
    """A module of PEFT's in the tower."""
    module = type("Linear", (torch.nn.Identity,), {"__module__": "peft.tuners.lora.layer"})()
    model.vision_model.lora = module.eval()
    yield
    del model.vision_model.lora


@contextlib.contextmanager
def configured(name: str, model: Any, *, value: bool) -> Iterator[None]:  # noqa: ANN401
    """A setting of the model's configuration."""
    before = getattr(model.config, name)
    setattr(model.config, name, value)
    yield
    setattr(model.config, name, before)


class PackedWeight(torch.nn.Parameter):
    """A parameter whose content is more than its bytes, as quantization packages have them."""


class Special:
    """What no entry can hold."""


class SpecialTensor(torch.Tensor):
    """A tensor that may mean more than its bytes."""


@contextlib.contextmanager
def with_weight(weight: torch.nn.Parameter, model: Any) -> Iterator[None]:  # noqa: ANN401
    """A weight whose content can't be told."""
    model.vision_model.odd = weight
    yield
    del model.vision_model.odd


@contextlib.contextmanager
def compiled(model: Any) -> Iterator[None]:  # noqa: ANN401
    """A compiled module in the tower."""
    a_tower_layer(model).compile(backend="eager")
    yield
    a_tower_layer(model)._compiled_call_impl = None  # noqa: SLF001 - there is no way back in public


@contextlib.contextmanager
def collecting(_: object) -> Iterator[None]:
    """An outer call of the framework's collects hidden states of whatever runs inside it."""
    token = output_capturing._active_collector.set({"hidden_states": []})  # noqa: SLF001
    yield
    output_capturing._active_collector.reset(token)  # noqa: SLF001


States = dict[str, tuple[Bypass, Callable[[Any], contextlib.AbstractContextManager[None]]]]
META = torch.nn.Parameter(torch.empty(2, device="meta"))
STATES: States = {
    "forward hook": (Bypass.HOOKS, lambda model: hooked("register_forward_hook", model)),
    "forward pre-hook": (Bypass.HOOKS, lambda model: hooked("register_forward_pre_hook", model)),
    "global hook": (Bypass.HOOKS, hooked_everywhere),
    "outer call that collects": (Bypass.INTERMEDIATES, collecting),
    "training mode": (Bypass.TRAINING, training),
    "adapter": (Bypass.ADAPTER, with_adapter),
    "compiled module": (Bypass.COMPILED, compiled),
    "config asks for hidden states": (
        Bypass.INTERMEDIATES,
        lambda model: configured("output_hidden_states", model, value=True),
    ),
    "config wants tuples": (
        Bypass.POSITIONAL,
        lambda model: configured("return_dict", model, value=False),
    ),
    "offloaded weights": (Bypass.WEIGHTS, lambda model: with_weight(META, model)),
    "packed weights": (
        Bypass.WEIGHTS,
        lambda model: with_weight(PackedWeight(torch.zeros(2)), model),
    ),
    "gradients": (Bypass.GRADIENT, lambda _: torch.enable_grad()),
}


@pytest.mark.parametrize(("reason", "state"), STATES.values(), ids=STATES)
def test_a_state_in_which_nothing_is_cached(
    reason: Bypass,
    state: Callable[[Any], contextlib.AbstractContextManager[None]],
    cache: Cache,
    count_runs: CountRuns,
) -> None:
    """Neither served nor stored while the state lasts, and as before when it is over."""
    model = made(models.clip)
    runs = count_runs(model, "vision_model")
    known, unknown = pixels(1), pixels(1)
    with cached_encoder(model, cache) as encoder:
        model.get_image_features(**known)
        cache.flush()
        with state(model):
            for inputs in (known, unknown):
                found = model.get_image_features(**inputs)
                fields = found if isinstance(found, tuple) else found.to_tuple()
                assert len(fields) >= 2
        assert {reason.value: 2} == encoder.stats().bypassed
        assert 3 == runs[0]
        cache.flush()
        assert 1 == cache.stats().entries
        model.get_image_features(**known)
    assert 3 == runs[0]
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)


Calls = dict[str, tuple[Bypass, Callable[[Any, dict[str, torch.Tensor]], Any]]]
CALLS: Calls = {
    "hidden states": (
        Bypass.INTERMEDIATES,
        lambda model, inputs: model.get_image_features(**inputs, output_hidden_states=True),
    ),
    "attentions": (
        Bypass.INTERMEDIATES,
        lambda model, inputs: model.get_image_features(**inputs, output_attentions=True),
    ),
    "a tuple": (
        Bypass.POSITIONAL,
        lambda model, inputs: model.get_image_features(**inputs, return_dict=False),
    ),
    "an unknown object": (
        Bypass.ARGUMENTS,
        lambda model, inputs: model.get_image_features(**inputs, unused=object()),
    ),
    "a tensor of another kind": (
        Bypass.ARGUMENTS,
        lambda model, inputs: model.get_image_features(
            inputs["pixel_values"].as_subclass(SpecialTensor)
        ),
    ),
}


@pytest.mark.parametrize(("reason", "call"), CALLS.values(), ids=CALLS)
def test_a_call_that_is_not_cached(
    reason: Bypass, call: Callable[[Any, dict[str, torch.Tensor]], Any], cache: Cache
) -> None:
    """What is asked for is what the model returns, with every field."""
    model = made(models.clip)
    inputs = pixels(1)
    expected = call(model, inputs)
    with cached_encoder(model, cache) as encoder:
        found = call(model, inputs)
        cache.flush()
    assert type(expected) is type(found)
    assert {reason.value: 1} == encoder.stats().bypassed
    assert 0 == cache.stats().entries


def test_an_input_that_requires_a_gradient_gets_one(cache: Cache) -> None:
    """Gradients flow to the pixels although every weight is frozen."""
    model = made(models.clip).requires_grad_(requires_grad=False)
    inputs = pixels(1)
    with cached_encoder(model, cache) as encoder:
        model.get_image_features(**inputs)
        cache.flush()
        with torch.enable_grad():
            wanted = inputs["pixel_values"].clone().requires_grad_()
            model.get_image_features(wanted).pooler_output.sum().backward()
    assert wanted.grad is not None
    assert {"gradient": 1} == encoder.stats().bypassed


def test_a_frozen_encoder_is_cached_while_the_language_model_trains(
    cache: Cache, count_runs: CountRuns
) -> None:
    """The epochs of a fine-tuning run encode each image once; gradients reach the language model."""
    model = made(models.qwen2_5_vl)
    model.model.visual.requires_grad_(requires_grad=False)
    model.train()
    model.model.visual.eval()
    runs = count_runs(model, "model.visual")
    ids = torch.tensor([[5, 62, *[60] * 4, 63, 6]])
    request = {
        "input_ids": ids,
        "mm_token_type_ids": (ids == 60).int(),
        **patches((1, 4, 4)),
    }
    optimizer = torch.optim.SGD(
        [weight for weight in model.parameters() if weight.requires_grad], 0.1
    )
    losses = []
    with cached_encoder(model, cache) as encoder, torch.enable_grad():
        for _ in range(3):
            loss = model(**request, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            cache.flush()
    assert 1 == runs[0]
    assert (2, 1, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)
    assert losses[2] < losses[1] < losses[0]


def test_an_encoder_that_uses_the_language_model_is_found_out(cache: Cache) -> None:
    """Weights that are not digested are seen when they are used: nothing is stored, then or later."""
    model = made(models.emu3)
    inputs = {"pixel_values": torch.randn(1, 3, 16, 16), "image_sizes": torch.tensor([[16, 16]])}
    with cached_encoder(model, cache) as encoder:
        for _ in range(3):
            before = model.model.get_image_features(**inputs).pooler_output[0]
            cache.flush()
            model.get_input_embeddings().weight.mul_(2)
            after = model.model.get_image_features(**inputs).pooler_output[0]
            assert torch.equal(before * 2, after)
    assert 0 == cache.stats().entries
    assert {"scope": 6} == encoder.stats().bypassed


def test_compiling_a_model_leaves_the_cache_out(cache: Cache) -> None:
    """A compiled call is the model's own, in one graph."""
    model = made(models.clip)
    inputs = pixels(1)
    with cached_encoder(model, cache) as encoder:
        traced = torch.compile(
            lambda pixel_values: model.get_image_features(pixel_values).pooler_output,
            backend="eager",
            fullgraph=True,
        )
        expected = traced(**inputs)
        cache.flush()
        assert 0 == cache.stats().entries
        assert torch.equal(expected, model.get_image_features(**inputs).pooler_output)
    assert 1 == encoder.stats().misses


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_traced_call_is_the_models_own(cache: Cache) -> None:
    """TorchScript's tracer would write a served tensor into the program."""
    model = made(models.clip).requires_grad_(requires_grad=False)
    one, other = pixels(1), pixels(1)
    with cached_encoder(model, cache) as encoder:
        model.get_image_features(**one)
        cache.flush()

        def pooled(pixel_values: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = model.get_image_features(pixel_values).pooler_output
            return output

        traced = torch.jit.trace(pooled, (one["pixel_values"],), check_trace=False)
    expected = model.get_image_features(**other).pooler_output
    torch.testing.assert_close(expected, traced(other["pixel_values"]))
    assert encoder.stats().bypassed["compiled"] >= 1


def test_inner_values_that_a_tower_is_asked_for_are_its_own(cache: Cache) -> None:
    """A tower that was asked for hidden states has them, and is cached again afterwards."""
    model = made(models.clip)
    inputs = pixels(1)
    with cached_encoder(model, cache, towers=["vision_model"]) as encoder:
        expected = model.vision_model(**inputs, output_hidden_states=True).hidden_states
        model.vision_model(**inputs)
        cache.flush()
        found = model.vision_model(**inputs, output_hidden_states=True).hidden_states
        assert len(expected) == len(found) == 3
        # The framework has left its own hooks behind; they are no reason to bypass.
        model.vision_model(**inputs)
    assert (1, 1, {"intermediates": 2}) == (
        encoder.stats().hits,
        encoder.stats().misses,
        encoder.stats().bypassed,
    )


def test_an_output_that_cannot_be_made_again_is_passed_on(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that returns something of its own is used as it stands, and asked no further."""
    model = made(models.clip)
    runs = [0]

    def odd(self: object, pixel_values: torch.Tensor) -> BaseModelOutputWithPooling:
        runs[0] += 1
        return BaseModelOutputWithPooling(last_hidden_state=pixel_values, pooler_output=Special())

    monkeypatch.setattr(type(model), "get_image_features", odd)
    with cached_encoder(model, cache) as encoder:
        for _ in range(3):
            found = model.get_image_features(**pixels(1)).pooler_output
            assert isinstance(found, Special)
    assert {"output": 3} == encoder.stats().bypassed
    assert 4 == runs[0]  # the first call twice, when it was found out
    assert 0 == cache.stats().entries


def test_items_whose_outputs_do_not_join_are_cached_together(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the knowledge about a model turns out wrong, its calls are taken whole from then on."""
    model = made(models.clip)

    def ragged(self: object, pixel_values: torch.Tensor) -> BaseModelOutputWithPooling:
        width = int(pixel_values.sum().abs().item() * 1000) % 97 + 1
        return BaseModelOutputWithPooling(pooler_output=torch.ones(len(pixel_values), width))

    monkeypatch.setattr(type(model), "get_image_features", ragged)
    inputs = {"pixel_values": torch.stack([torch.ones(3, 16, 16), torch.full((3, 16, 16), 0.5)])}
    expected = model.get_image_features(**inputs).pooler_output
    with cached_encoder(model, cache) as encoder:
        for _ in range(3):
            assert torch.equal(expected, model.get_image_features(**inputs).pooler_output)
            cache.flush()
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)
    assert {"output": 1} == encoder.stats().bypassed


def test_each_reason_is_said_once(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wonders why there are no hits finds the reason in the log, and not a thousand times."""
    model = made(models.clip)
    with caplog.at_level(logging.INFO, "eccache.transformers"), cached_encoder(model, cache):
        model.train()
        for _ in range(3):
            model.get_image_features(**pixels(1))
    lines = [record.message for record in caplog.records if "bypassed" in record.message]
    assert 1 == len(lines)
    assert "training mode; call eval()" in lines[0]


@pytest.mark.parametrize("field", ["last_hidden_state", "hidden_states"])
def test_a_field_that_is_not_kept_says_so(field: str, cache: Cache) -> None:
    """A missing field is an error with a remedy, on a hit and on a miss; never another one in its place."""
    model = made(models.llava)
    inputs = pixels(1)
    with cached_encoder(model, cache):
        for _ in range(2):
            output = model.model.get_image_features(**inputs)
            with pytest.raises(AttributeError, match="every_field=True"):
                getattr(output, field)
            with pytest.raises(TypeError, match="ask for a field by name"):
                output[0]
            assert field in repr(output).split("without")[1]
            assert output.keys() == copy.deepcopy(output).keys()
            cache.flush()


def test_every_field_can_be_kept(cache: Cache) -> None:
    """With every_field the output is the model's to the last field, by name and by place."""
    model = made(models.llava)
    inputs = pixels(1)
    expected = model.model.get_image_features(**inputs)
    with cached_encoder(model, cache, every_field=True) as encoder:
        for _ in range(2):
            found = model.model.get_image_features(**inputs)
            assert type(expected) is type(found)
            assert list(expected.keys()) == list(found.keys())
            assert torch.equal(expected[0], found[0])
            assert torch.equal(expected.pooler_output[0], found.pooler_output[0])
            pairs = zip(expected.hidden_states, found.hidden_states, strict=True)
            assert all(torch.equal(one, other) for one, other in pairs)
            cache.flush()
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)
