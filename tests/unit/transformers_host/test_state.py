"""What lies on a module beside parameters and buffers is part of the encoder, if its code uses it."""

from __future__ import annotations

import dataclasses
import functools
import types
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedConfig

from eccache.adapters.transformers.torch_functions import TorchFunctions
from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host.models import HOSTS, made

Cache = ECCacheEngine[torch.Tensor]
Replacement = tuple[Any, str, Callable[[Any], Any]]
"""Where a function lies, its name, and what is put in its place."""
LAYER = "vision_model.encoder.layers.0"


@dataclasses.dataclass
class Settings:
    """Settings as whoever writes a module keeps them."""

    by: float


class Plain:
    """The same as an ordinary class."""

    def __init__(self, by: float) -> None:
        self.by = by


class Slotted:
    """The same without a dictionary, whose content is not looked for."""

    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by


class Scaled(torch.nn.Module):
    """An MLP of the user's own, which multiplies by what lies on it."""

    def __init__(self, inner: torch.nn.Module, extra: object) -> None:
        super().__init__()
        self.inner = inner
        self.extra = extra
        self.unused: object = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        found: torch.Tensor = self.inner(states) * number(self.extra)
        return found


class ScaledInSecret(Scaled):
    """The same by a number with a private name."""

    def __init__(self, inner: torch.nn.Module, extra: object) -> None:
        super().__init__(inner, 1.0)
        self._extra = extra

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        found: torch.Tensor = super().forward(states) * number(self._extra)
        return found


def number(held: Any) -> Any:  # noqa: ANN401
    """What is in an object of any kind."""
    for _ in range(3):
        if isinstance(held, dict):
            held = held["by"]
        elif isinstance(held, (list, tuple)):
            held = held[0]
        elif hasattr(held, "by"):
            held = held.by
    return held


MAKERS: dict[str, Callable[[float], Any]] = {
    "a configuration": lambda by: PreTrainedConfig(by=by),
    "a configuration that holds an object": lambda by: PreTrainedConfig(by=Plain(by)),
    "a dataclass": Settings,
    "a dict": lambda by: {"by": by},
    "a dict of tensors": lambda by: {"by": torch.tensor(by)},
    "a list of objects": lambda by: [Plain(by)],
    "a namespace": lambda by: Namespace(by=by),
    "a namespace of tensors": lambda by: types.SimpleNamespace(by=torch.tensor(by)),
    "a number": float,
    "a tensor": torch.tensor,
    "an object": Plain,
}


def model_with(extra: object, kind: type[Scaled] = Scaled) -> tuple[Any, Scaled]:
    """A model that is always the same but for what lies on one module, and this module."""
    model: Any = made(HOSTS["siglip"].make)
    layer = model.get_submodule(LAYER)
    layer.mlp = kind(layer.mlp, extra).eval()
    return model, layer.mlp


def features(model: Any) -> torch.Tensor:  # noqa: ANN401
    """What the model makes of an input that is always the same."""
    torch.manual_seed(1)
    found: torch.Tensor = model.get_image_features(**HOSTS["siglip"].items(1)).pooler_output
    return found


@pytest.mark.parametrize("kind", [Scaled, ScaledInSecret])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_models_with_other_state_have_entries_of_their_own(
    make: Callable[[float], Any], kind: type[Scaled], cache: Cache
) -> None:
    """Equal weights are not enough; equal state is."""
    found = []
    for by, hits in ((2.0, 0), (3.0, 0), (2.0, 1), (3.0, 1)):
        model, _ = model_with(make(by), kind)
        expected = features(model)
        with cached_encoder(model, cache) as encoder:
            found.append(features(model))
            cache.flush()
        assert torch.equal(expected, found[-1])
        assert (hits, {}) == (encoder.stats().hits, encoder.stats().bypassed)
    assert not torch.equal(found[0], found[1])


def in_place(module: Any) -> None:  # noqa: ANN401
    """Change a tensor the way torch counts."""
    module.extra.fill_(3.0)


def behind_torch(module: Any) -> None:  # noqa: ANN401
    """Change a tensor without torch's knowledge."""
    module.extra.numpy()[...] = 3.0


def another(module: Any) -> None:  # noqa: ANN401
    """Put another one in its place."""
    module.extra = torch.tensor(3.0)


def field(module: Any) -> None:  # noqa: ANN401
    """Change an object."""
    module.extra.by = 3.0


def element(module: Any) -> None:  # noqa: ANN401
    """Change a collection."""
    module.extra["by"] = 3.0


def object_in_config(module: Any) -> None:  # noqa: ANN401
    """Change what a configuration holds."""
    module.extra.by = Plain(3.0)


CHANGES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "a configuration": (PreTrainedConfig(by=2.0), field),
    "a configuration's object": (PreTrainedConfig(by=Plain(2.0)), object_in_config),
    "a dict": ({"by": 2.0}, element),
    "a field": (Plain(2.0), field),
    "a first field": (Plain(2.0), lambda module: setattr(module, "extra", Plain(3.0))),
    "a tensor by another": (torch.tensor(2.0), another),
    "a tensor in place": (torch.tensor(2.0), in_place),
    "a tensor behind torch": (torch.tensor(2.0), behind_torch),
}


@pytest.mark.parametrize(("extra", "change"), CHANGES.values(), ids=CHANGES)
def test_state_that_changes_between_calls_is_noticed(
    extra: object, change: Callable[[Any], None], cache: Cache
) -> None:
    """The next call is of another encoder."""
    model, module = model_with(extra)
    with cached_encoder(model, cache) as encoder:
        before = features(model)
        cache.flush()
        change(module)
        after = features(model)
    assert not torch.equal(before, after)
    assert torch.equal(features(model), after)
    assert (0, 2, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


UNTOLD: dict[str, tuple[object, str]] = {
    "a module from elsewhere": (
        types.SimpleNamespace(by=2.0, layer=torch.nn.Linear(1, 1)),
        "patched",
    ),
    "a sparse tensor": (types.SimpleNamespace(by=2.0, on=torch.eye(2).to_sparse()), "weights"),
    "an array": (np.array([2.0], np.float32)[0], "patched"),
    "an object without a dictionary": (Slotted(2.0), "patched"),
}


@pytest.mark.parametrize(("extra", "reason"), UNTOLD.values(), ids=UNTOLD)
def test_state_that_cannot_be_told_is_not_cached(extra: object, reason: str, cache: Cache) -> None:
    """Neither served nor stored."""
    model, _ = model_with(extra)
    with cached_encoder(model, cache) as encoder:
        features(model)
    assert {reason: 1} == encoder.stats().bypassed


def test_state_that_no_code_uses_has_no_part(cache: Cache) -> None:
    """A tensor that somebody left on a module is not read."""
    model, module = model_with(2.0)
    with cached_encoder(model, cache) as encoder:
        features(model)
        cache.flush()
        for module.unused in (torch.ones(1), Slotted(1.0)):
            features(model)
    assert (2, 1) == (encoder.stats().hits, encoder.stats().misses)


def test_a_tensor_without_content_has_no_part(cache: Cache) -> None:
    """What a model is loaded around may stay on it."""
    model, _ = model_with(types.SimpleNamespace(by=2.0, shape=torch.empty(2, device="meta")))
    for hits in (0, 1):
        with cached_encoder(model, cache) as encoder:
            features(model)
            cache.flush()
        assert hits == encoder.stats().hits


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement."""
    return lambda *args, **kwargs: function(*args, **kwargs) * 2


class Doubled:
    """A replacement that is an object."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        """Call the function, and double."""
        return self.function(*args, **kwargs) * 2

    def call(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        """The same as a method."""
        return self(*args, **kwargs)


F = torch.nn.functional
REPLACED: dict[str, Replacement] = {
    "linear": (F, "linear", doubled),
    "linear, compiled": (F, "linear", lambda f: torch.compile(f, backend="eager")),
    "linear, a method": (F, "linear", lambda f: Doubled(f).call),
    "linear, a partial": (F, "linear", functools.partial),
    "linear, an object": (F, "linear", Doubled),
    "linear, with a decorator of torch": (F, "linear", lambda f: torch.no_grad()(doubled(f))),
    "layer_norm": (F, "layer_norm", doubled),
    "layer_norm with a cache": (F, "layer_norm", lambda f: functools.lru_cache(doubled(f))),
    "scaled_dot_product_attention": (F, "scaled_dot_product_attention", doubled),
    "softmax": (torch, "softmax", doubled),
    "a method of tensors": (torch.Tensor, "flatten", doubled),
    "an operator of tensors": (torch.Tensor, "__matmul__", doubled),
    "a static method of tensors": (torch.Tensor, "extra", lambda _: staticmethod(doubled(min))),
}


@pytest.mark.parametrize("replacement", REPLACED.values(), ids=REPLACED)
def test_a_function_of_torch_that_was_replaced_is_not_cached(
    replacement: Replacement, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own output comes back, before, between and after."""
    home, name, replace = replacement
    model, _ = model_with(1.0)
    original = features(model)
    with cached_encoder(model, cache) as encoder:
        with monkeypatch.context() as patch:
            patch.setattr(home, name, replace(getattr(home, name, None)), raising=False)
            expected = features(model)
            assert {"patched": 1} == encoder.stats().bypassed
        assert torch.equal(original, features(model))
        cache.flush()
        with monkeypatch.context() as patch:
            patch.setattr(home, name, replace(getattr(home, name, None)), raising=False)
            assert torch.equal(expected, features(model))
        assert torch.equal(original, features(model))
    assert (1, 1, {"patched": 2}) == (
        encoder.stats().hits,
        encoder.stats().misses,
        encoder.stats().bypassed,
    )


OWN: dict[str, Replacement] = {
    "a loss": (F, "cross_entropy", doubled),
    "of torch with a cache": (F, "layer_norm", functools.lru_cache),
    "of torch with a decorator": (F, "linear", lambda _: torch.no_grad()(F.normalize)),
    "something private": (torch, "_extra", doubled),
}


@pytest.mark.parametrize("replacement", OWN.values(), ids=OWN)
def test_what_no_encoder_calls_may_be_replaced(
    replacement: Replacement, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for training are no other encoder, and torch's own decorators are torch's."""
    home, name, replace = replacement
    monkeypatch.setattr(home, name, replace(getattr(home, name, None)), raising=False)
    assert TorchFunctions().foreign() is None


def test_where_a_model_came_from_and_lies_has_no_part(cache: Cache, tmp_path: Path) -> None:
    """A copy of its files, and a model that accelerate put on its device, are the same encoder."""
    model: Any = made(HOSTS["siglip"].make)
    hits = []
    for folder in ("here", "there"):
        model.save_pretrained(tmp_path / folder)
        loaded: Any = type(model).from_pretrained(tmp_path / folder).eval()
        loaded.hf_device_map = {"": folder}
        with cached_encoder(loaded, cache) as encoder:
            features(loaded)
            cache.flush()
        hits.append(encoder.stats().hits)
    assert [0, 1] == hits
