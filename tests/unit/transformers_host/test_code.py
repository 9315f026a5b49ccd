"""Other code is another encoder: a model that was patched never gets the original's outputs."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen
from transformers.models.siglip import modeling_siglip as siglip

from eccache.adapters.transformers.bytecode import code_digest
from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host import models
from tests.unit.transformers_host.models import HOSTS, made

Cache = ECCacheEngine[torch.Tensor]
CountRuns = Callable[[torch.nn.Module, str], list[int]]
Function = Callable[..., Any]
MLP = "vision_model.encoder.layers.0.mlp"
FACTOR = 3.0


@attrs.frozen
class Patch:
    """A way to replace code.

    Attributes:
        apply: does it to a model.
        host: the model's name.
    """

    apply: Callable[[Any, pytest.MonkeyPatch], object]
    host: str = "siglip"


def features(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:  # noqa: ANN401
    """What the model's encoder returns, as one tensor."""
    found = model.base_model.get_image_features(**inputs).pooler_output
    return found if isinstance(found, torch.Tensor) else torch.cat(list(found))


def times(value: Any, by: float) -> Any:  # noqa: ANN401
    """Multiply a tensor, the tensors of a tuple, or an output's features."""
    if isinstance(value, tuple):
        return tuple(times(one, by) for one in value)
    if value is None or isinstance(value, torch.Tensor):
        return value if value is None else value * by
    value.pooler_output = value.pooler_output * by
    return value


def scaled(function: Function, by: float = 2.0) -> Function:
    """A function that returns multiples of what another one does, known by its closure."""
    return lambda *args, **kwargs: times(function(*args, **kwargs), by)


def scaled_alike(function: Function) -> Function:
    """The same with the signature of what it replaces, as a decorator makes it."""
    return functools.wraps(function)(scaled(function))


def scaled_by_global(function: Function) -> Function:
    """The same by a number that lies in a module."""
    return lambda *args, **kwargs: times(function(*args, **kwargs), FACTOR)


def call_scaled(function: Function, by: float, *args: Any) -> Any:  # noqa: ANN401
    """The same, to be bound to its first arguments."""
    return times(function(*args), by)


class Scaled:
    """The same as an object."""

    def __init__(self, function: Function, by: float) -> None:
        self.function = function
        self.by = by

    def __call__(self, *args: Any) -> Any:  # noqa: ANN401 - passed on
        """Call the function."""
        return times(self.function(*args), self.by)


def without_second_layer(self: Any, states: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """A method for an MLP."""
    found: torch.Tensor = self.fc2(torch.relu(self.fc1(states)))
    return found


def scaled_norms(function: Function) -> Function:
    """Module.__call__ with a difference."""

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        found = function(self, *args, **kwargs)
        return found * 2 if isinstance(self, torch.nn.LayerNorm) else found

    return call


class Doubled(torch.nn.Module):
    """A parametrization."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Double the weight."""
        return weight * 2


def parametrize(model: Any, _: object) -> None:  # noqa: ANN401
    """Compute a weight from the one that is stored."""
    layer = model.get_submodule(MLP).fc1
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled()).eval()


def on(path: str, name: str, replace: Callable[[Any], Any] = scaled) -> Patch:
    """Replace a function of one module of a model."""

    def apply(model: Any, _: object) -> None:  # noqa: ANN401
        module = model.get_submodule(path)
        setattr(module, name, replace(getattr(module, name)))

    return Patch(apply)


def within(
    home: object, name: str, replace: Callable[[Any], Any] = scaled, host: str = "siglip"
) -> Patch:
    """Replace what a class or a module of Python has by a name."""
    return Patch(
        lambda _, monkeypatch: monkeypatch.setattr(home, name, replace(getattr(home, name))), host
    )


def in_table(table: Any) -> Patch:  # noqa: ANN401
    """Replace an implementation of attention."""
    return Patch(
        lambda _, monkeypatch: monkeypatch.setitem(
            table, "sdpa", scaled(ALL_ATTENTION_FUNCTIONS["sdpa"])
        )
    )


def method_of(module: Any) -> Function:  # noqa: ANN401
    """Another class's method, bound."""
    return types.MethodType(without_second_layer, module.__self__)


PATCHES = {
    "forward of a module": on(MLP, "forward"),
    "forward of a module, another number": on(MLP, "forward", lambda f: scaled(f, 4.0)),
    "forward of a module, by a global": on(MLP, "forward", scaled_by_global),
    "forward of a module, a partial": on(
        MLP, "forward", lambda f: functools.partial(call_scaled, f, 2.0)
    ),
    "forward of a module, another partial": on(
        MLP, "forward", lambda f: functools.partial(call_scaled, f, 4.0)
    ),
    "forward of a module, an object": on(MLP, "forward", lambda f: Scaled(f, 2.0)),
    "forward of a module, another object": on(MLP, "forward", lambda f: Scaled(f, 4.0)),
    "forward of a module, a method": on(MLP, "forward", method_of),
    "forward of a module, under autocast": on(
        MLP, "forward", torch.autocast("cpu", torch.bfloat16)
    ),
    "forward of the tower": on("vision_model", "forward"),
    "forward of a class": within(siglip.SiglipMLP, "forward"),
    "forward of a class of torch": within(torch.nn.LayerNorm, "forward"),
    "calling any module": within(torch.nn.Module, "_call_impl", scaled_norms),
    "a function of the modeling module": within(
        qwen, "apply_rotary_pos_emb_vision", host="qwen2_5_vl"
    ),
    "an entry of the table": in_table(ALL_ATTENTION_FUNCTIONS._local_mapping),  # noqa: SLF001 - what an assignment changes
    "a registered implementation": in_table(type(ALL_ATTENTION_FUNCTIONS)._global_mapping),  # noqa: SLF001
    "a function on a module": on(f"{MLP}.activation_fn", "act"),
    "a parametrization": Patch(parametrize),
    "the method on the model": on("", "get_image_features", scaled_alike),
    "the method of the class": within(siglip.SiglipModel, "get_image_features", scaled_alike),
}


def other(patch: Patch) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model that is always the same, and inputs."""
    model = made(HOSTS[patch.host].make)
    torch.manual_seed(1)
    return model, HOSTS[patch.host].items(1)


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_a_model_patched_before_gets_its_own_outputs(
    patch: Patch, cache: Cache, count_runs: CountRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal weights and configuration are not enough; the patched model's outputs are served to it alone."""
    model, inputs = other(patch)
    with cached_encoder(model, cache):
        original = features(model, inputs)
        cache.flush()
    patched, _ = other(patch)
    patch.apply(patched, monkeypatch)
    expected = features(patched, inputs)
    assert not torch.equal(original, expected)
    runs = count_runs(patched, HOSTS[patch.host].tower)
    for served in (False, True):
        with cached_encoder(patched, cache) as encoder:
            assert torch.equal(expected, features(patched, inputs))
            cache.flush()
        assert (served, not served, {}) == (
            encoder.stats().hits,
            encoder.stats().misses,
            encoder.stats().bypassed,
        )
    assert 1 == runs[0]


@contextlib.contextmanager
def patched_while_cached(
    patch: Patch, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Any, dict[str, torch.Tensor], torch.Tensor]]:
    """Patch a model after its first call; yield encoder, model, inputs and the first output."""
    model, inputs = other(patch)
    with cached_encoder(model, cache) as encoder:
        original = features(model, inputs)
        cache.flush()
        patch.apply(model, monkeypatch)
        yield encoder, model, inputs, original


# What is put in front of a method that is cached already gets what the cached one returns.
WHILE_CACHED = {name: patch for name, patch in PATCHES.items() if name != "the method on the model"}


@pytest.mark.parametrize("patch", WHILE_CACHED.values(), ids=WHILE_CACHED)
def test_a_model_patched_while_it_is_cached_gets_its_own_outputs(
    patch: Patch, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call is the patched model's."""
    with patched_while_cached(patch, cache, monkeypatch) as (encoder, model, inputs, original):
        found = [features(model, inputs)]
        cache.flush()
        found.append(features(model, inputs))
    expected = features(model, inputs)
    assert not torch.equal(original, expected)
    assert all(torch.equal(expected, one) for one in found)
    assert (1, 2, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)


def test_a_patch_that_is_taken_back_leaves_the_first_entries(cache: Cache) -> None:
    """It is the code that counts, not the history."""
    patch = PATCHES["forward of a module"]
    model, inputs = other(patch)
    with cached_encoder(model, cache) as encoder, pytest.MonkeyPatch.context() as monkeypatch:
        original = features(model, inputs)
        cache.flush()
        patch.apply(model, monkeypatch)
        features(model, inputs)
        del model.get_submodule(MLP).forward
        assert torch.equal(original, features(model, inputs))
        monkeypatch.setattr(siglip.SiglipMLP, "forward", scaled(siglip.SiglipMLP.forward))
        features(model, inputs)
        monkeypatch.undo()
        assert torch.equal(original, features(model, inputs))
    assert (2, 3) == (encoder.stats().hits, encoder.stats().misses)


def number_in_a_module(_: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """Change a global."""
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5.0)


def cell(model: Any, _: object) -> None:  # noqa: ANN401
    """Change what a closure holds."""
    closure = dict(
        zip(
            model.get_submodule(MLP).forward.__code__.co_freevars,
            model.get_submodule(MLP).forward.__closure__,
            strict=True,
        )
    )
    closure["by"].cell_contents = 5.0


def field(model: Any, _: object) -> None:  # noqa: ANN401
    """Change what an object holds."""
    model.get_submodule(MLP).forward.by = 5.0


def code(model: Any, _: object) -> None:  # noqa: ANN401
    """Change a function in place."""
    forward = model.get_submodule(MLP).forward
    forward.__code__ = scaled_more(forward).__code__


def scaled_more(function: Function, by: float = 2.0) -> Function:
    """Like `scaled`, with other code over the same closure."""
    return lambda *args, **kwargs: times(function(*args, **kwargs), by + 1)


def in_list(numbers: list[float]) -> Callable[[Function], Function]:
    """A replacement that reads a number of a list."""
    return lambda function: lambda *args: times(function(*args), numbers[-1])


NUMBERS = [2.0]
LATER = {
    "a global": (PATCHES["forward of a module, by a global"], number_in_a_module),
    "a function's code": (PATCHES["forward of a module"], code),
    "a closure": (PATCHES["forward of a module"], cell),
    "an object's field": (PATCHES["forward of a module, an object"], field),
    "a list in a closure": (on(MLP, "forward", in_list(NUMBERS)), lambda *_: NUMBERS.append(7.0)),
}


@pytest.mark.parametrize(("patch", "change"), LATER.values(), ids=LATER)
def test_what_a_patch_reads_is_seen_when_it_changes(
    patch: Patch,
    change: Callable[[Any, pytest.MonkeyPatch], object],
    cache: Cache,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers that replaced code computes with are part of it."""
    model, inputs = other(patch)
    patch.apply(model, monkeypatch)
    with cached_encoder(model, cache) as encoder:
        before = features(model, inputs)
        cache.flush()
        change(model, monkeypatch)
        found = features(model, inputs)
    expected = features(model, inputs)
    assert not torch.equal(before, expected)
    assert torch.equal(expected, found)
    assert (0, 2) == (encoder.stats().hits, encoder.stats().misses)


class Opaque:
    """An object whose content can't be told."""

    __slots__ = ("by",)

    def __init__(self, by: float) -> None:
        self.by = by


def by_environment(function: Function) -> Function:
    """A replacement that reads the environment."""
    return lambda *args: times(function(*args), float(os.environ.get("FACTOR", "2")))


def by_variable(function: Function) -> Function:
    """A replacement that reads a text of the environment by a function."""
    return lambda *args: times(function(*args), float(os.getenv("FACTOR", "2")))


def by_other_name(function: Function) -> Function:
    """A replacement that has the environment by another name."""
    return lambda *args: times(function(*args), float(ENVIRONMENT.get("FACTOR", "2")))


def by_module_name(function: Function) -> Function:
    """A replacement that asks for a global by a text."""
    return lambda *args: times(function(*args), globals()["FACTOR"])


def by_import(function: Function) -> Function:
    """A replacement that asks for a module by a text."""
    return lambda *args: times(function(*args), importlib.import_module(__name__).FACTOR)


def by_context(function: Function) -> Function:
    """A replacement that reads a context variable."""
    return lambda *args: times(function(*args), CONTEXT.get())


def by_tensor(function: Function) -> Function:
    """A replacement that holds a tensor."""
    factor = torch.tensor(2.0)
    return lambda *args: function(*args) * factor


def by_opaque(function: Function) -> Function:
    """A replacement that holds an object of any kind."""
    factor = Opaque(2.0)
    return lambda *args: function(*args) * factor.by


def by_module(function: Function) -> Function:
    """A replacement that holds a module which is no part of the model."""
    layer = torch.nn.Linear(32, 32).eval()
    return lambda *args: layer(function(*args))


OPAQUE = Opaque(2.0)
ONES = torch.ones(1)
CONTEXT = ContextVar("CONTEXT", default=2.0)
ENVIRONMENT = os.environ
UNTOLD = {
    "a context variable": on(MLP, "forward", by_context),
    "the environment": on(MLP, "forward", by_environment),
    "the environment, by a function": on(MLP, "forward", by_variable),
    "the environment, by another name": on(MLP, "forward", by_other_name),
    "a global by a text": on(MLP, "forward", by_module_name),
    "a module by a text": on(MLP, "forward", by_import),
    "a tensor": on(MLP, "forward", by_tensor),
    "an object": on(MLP, "forward", by_opaque),
    "a module": on(MLP, "forward", by_module),
    "a default": on(MLP, "forward", lambda f: lambda x, by=OPAQUE: f(x) * by.by),
    "of a class": within(
        siglip.SiglipMLP, "forward", lambda f: lambda self, x, by=ONES: f(self, x) + by
    ),
}


@pytest.mark.parametrize("patch", UNTOLD.values(), ids=UNTOLD)
def test_code_that_cannot_be_told_is_not_cached(
    patch: Patch, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither served nor stored, and said; when the patch is gone all is as before."""
    with patched_while_cached(patch, cache, monkeypatch) as (encoder, model, inputs, original):
        found = [features(model, inputs) for _ in range(2)]
        cache.flush()
        assert all(not torch.equal(original, one) for one in found)
        assert torch.equal(*found)
        assert {"patched": 2} == encoder.stats().bypassed
        monkeypatch.undo()
        vars(model.get_submodule(MLP)).pop("forward", None)
        assert torch.equal(original, features(model, inputs))
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)
    assert 1 == cache.stats().entries


COMPILED = {
    "a method on the tower": on(
        "vision_model", "forward", lambda f: torch.compile(f, backend="eager")
    ),
    "a method on the model": on(
        "", "get_image_features", lambda f: torch.compile(f, backend="eager")
    ),
    "a function of the modeling module": within(
        qwen,
        "apply_rotary_pos_emb_vision",
        lambda f: torch.compile(f, backend="eager"),
        host="qwen2_5_vl",
    ),
}


@pytest.mark.parametrize("patch", COMPILED.values(), ids=COMPILED)
def test_compiled_code_is_not_cached(
    patch: Patch, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels follow from settings of the compiler, which are not known."""
    model, inputs = other(patch)
    patch.apply(model, monkeypatch)
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
    assert {"compiled": 1} == encoder.stats().bypassed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_is_not_cached(cache: Cache) -> None:
    """Its class says nothing of what it does."""
    model, inputs = other(PATCHES["forward of a module"])
    mlp = model.get_submodule(MLP)
    mlp.activation_fn = torch.jit.script(torch.nn.ReLU().eval())
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
    assert {"compiled": 1} == encoder.stats().bypassed


HOOKS = """
import functools
import torch

class ModelHook:
    no_grad = False
    def pre_forward(self, module, *args, **kwargs):
        return args, kwargs
    def post_forward(self, module, output):
        return output

class AlignDevicesHook(ModelHook):
    def __init__(self):
        self.execution_device = torch.device("cpu")
        self.tied_params_map = {1: torch.ones(1)}

class SequentialHook(ModelHook):
    def __init__(self, *hooks):
        self.hooks = hooks

class LayerwiseCastingHook(ModelHook):
    def post_forward(self, module, output):
        return output.to(torch.bfloat16).to(output.dtype)

def add_hook_to_module(module, hook):
    old_forward = module.forward
    module._old_forward = old_forward
    module._hf_hook = hook

    def new_forward(module, *args, **kwargs):
        args, kwargs = module._hf_hook.pre_forward(module, *args, **kwargs)
        if module._hf_hook.no_grad:
            with torch.no_grad():
                output = module._old_forward(*args, **kwargs)
        else:
            output = module._old_forward(*args, **kwargs)
        return module._hf_hook.post_forward(module, output)

    module.forward = functools.update_wrapper(functools.partial(new_forward, module), old_forward)
    return module
"""
"""What accelerate does to each module of a model that it dispatches."""


def accelerate_hooks() -> Any:  # noqa: ANN401
    """The module of accelerate's, as far as it counts here."""
    hooks = types.ModuleType("accelerate.hooks")
    exec(HOOKS, vars(hooks))  # noqa: S102 - a text of ours
    return hooks


def test_a_model_dispatched_by_accelerate_shares_with_one_that_is_not(cache: Cache) -> None:
    """Its hooks only move tensors: no other code."""
    hooks = accelerate_hooks()
    model, inputs = other(PATCHES["forward of a module"])
    with cached_encoder(model, cache):
        original = features(model, inputs)
        cache.flush()
    for place, module in enumerate(model.vision_model.modules()):
        hook = hooks.AlignDevicesHook()
        hooks.add_hook_to_module(module, hooks.SequentialHook(hook, hook) if place % 2 else hook)
    with cached_encoder(model, cache) as encoder:
        assert torch.equal(original, features(model, inputs))
        assert 1 == encoder.stats().hits
        model.vision_model.post_layernorm._old_forward = scaled(torch.nn.Identity().forward)  # noqa: SLF001
        found = features(model, inputs)
    assert torch.equal(features(model, inputs), found)
    assert not torch.equal(original, found)


@pytest.mark.parametrize("kind", ["LayerwiseCastingHook", "of the user"])
def test_hooks_of_accelerate_that_compute_are_other_code(kind: str, cache: Cache) -> None:
    """Only those that are known to move tensors are looked through."""
    hooks = accelerate_hooks()
    hook = type("Mine", (hooks.ModelHook,), {"post_forward": lambda *args: args[-1] * 2})
    model, inputs = other(PATCHES["forward of a module"])
    with cached_encoder(model, cache):
        original = features(model, inputs)
        cache.flush()
        hooks.add_hook_to_module(model.get_submodule(MLP), getattr(hooks, kind, hook)())
        found = [features(model, inputs) for _ in range(2)]
    expected = features(model, inputs)
    assert not torch.equal(original, expected)
    assert all(torch.equal(expected, one) for one in found)


def test_two_encoders_of_one_model_look_through_each_other(cache: Cache) -> None:
    """A tower that is cached by name is the same code to the method that calls it."""
    model, inputs = other(PATCHES["forward of a module"])
    with cached_encoder(model, cache):
        expected = features(model, inputs)
        cache.flush()
    with (
        cached_encoder(model, cache, towers=["vision_model"]),
        cached_encoder(model, cache) as both,
    ):
        assert torch.equal(expected, features(model, inputs))
    assert (1, 0) == (both.stats().hits, both.stats().misses)


def test_other_models_of_the_process_do_not_count(cache: Cache) -> None:
    """What the framework notes of the models that it made is no code."""
    model, inputs = other(PATCHES["forward of a module"])
    with cached_encoder(model, cache) as encoder:
        features(model, inputs)
        (before,) = encoder.fingerprints()
        made(models.whisper).get_encoder()(**HOSTS["whisper"].items(1))
    with cached_encoder(model, cache) as encoder:
        assert [before.digest] == [one.digest for one in encoder.fingerprints()]


SETS = """
from eccache.adapters.transformers.bytecode import code_digest
def chosen(name): return [one for one in (1, (2.0, b"c")) if name in {"sdpa", "eager", "flash"}]
print(code_digest(chosen.__code__))
"""


def test_processes_write_code_alike() -> None:
    """Whatever order a process has its texts in."""
    src = Path(__file__).parents[3] / "src"
    digests = {
        subprocess.run(
            [sys.executable, "-c", SETS],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(src)},
            text=True,
        ).stdout
        for seed in range(1, 4)
    }
    assert 1 == len(digests)


def test_other_code_has_another_digest() -> None:
    """Instructions, constants, names and parameters count; the place does not."""
    sources = ["x + 1", "x + 2", "x + 1.0", "y + 1", "x - 1", "x + True", "f(x) + 1"]
    digests = {code_digest(compile(one, "a", "eval")) for one in sources}
    assert len(sources) == len(digests)
    assert code_digest(compile("\nx + 1", "b", "eval")) in digests
