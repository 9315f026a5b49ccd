"""An id stands for everything that an output depends on, and for nothing else."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.call import EncoderCall, bind
from eccache.adapters.transformers.content_key import content_key
from eccache.adapters.transformers.convention import Convention, Division, divide
from eccache.adapters.transformers.settings import Plain, plain

CONTEXT: dict[str, Plain] = {"model": "a"}
CALL = EncoderCall(
    "pixel_values",
    {"pixel_values": torch.arange(24.0).reshape(2, 3, 4), "grid": torch.tensor([[1, 2, 3]])},
    {"interpolate": False, "layer": -2},
    {"interpolate": False, "layer": -2},
)


def changed(**tensors: torch.Tensor) -> EncoderCall:
    """The call with other tensors."""
    return CALL.part({**CALL.tensors, **tensors})


def with_settings(**settings: Plain) -> EncoderCall:
    """The call with other settings."""
    return EncoderCall(CALL.main, CALL.tensors, {**CALL.settings, **settings}, CALL.others)


PIXELS = CALL.tensors["pixel_values"]
OTHERS = {
    "one bit": changed(pixel_values=PIXELS.nextafter(PIXELS + 1)),
    "dtype": changed(pixel_values=PIXELS.to(torch.float64)),
    "same bits, other dtype": changed(pixel_values=PIXELS.view(torch.int32)),
    "shape": changed(pixel_values=PIXELS.reshape(3, 2, 4)),
    "memory layout": changed(pixel_values=PIXELS.mT.contiguous().mT),
    "grid": changed(grid=torch.tensor([[1, 3, 2]])),
    "another name": CALL.part({"pixel_values": PIXELS, "sizes": CALL.tensors["grid"]}),
    "one tensor less": CALL.part({"pixel_values": PIXELS}),
    "setting": with_settings(layer=-1),
    "setting of another type": with_settings(interpolate=0),
    "one setting more": with_settings(more=None),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_may_change_an_output_changes_the_id(other: EncoderCall) -> None:
    """Tensors to the bit, their form, every setting, by name."""
    assert content_key(CALL, CONTEXT) != content_key(other, CONTEXT)


def test_the_context_changes_the_id() -> None:
    """So do the model, the method and the circumstances."""
    keys = {
        content_key(CALL, context)
        for context in ({"model": "a"}, {"model": "b"}, {"model": "a", "more": ""}, {})
    }
    assert 4 == len(keys)


def test_equal_calls_have_one_id() -> None:
    """Neither the order of arguments nor the address of a tensor counts."""
    twin = CALL.part({name: CALL.tensors[name].clone() for name in reversed(CALL.tensors)})
    assert content_key(CALL, CONTEXT) == content_key(twin, CONTEXT)
    assert 64 == len(content_key(CALL, CONTEXT))


@hypothesis.given(st.lists(st.binary(max_size=6), min_size=1, max_size=3), st.data())
def test_bytes_never_move_from_one_tensor_to_the_next(parts: list[bytes], data: Any) -> None:  # noqa: ANN401
    """The same bytes cut elsewhere are another call."""
    whole = b"".join(parts)
    cuts = data.draw(
        st.lists(st.integers(0, len(whole)), min_size=len(parts) - 1, max_size=len(parts) - 1)
    )
    bounds = [0, *sorted(cuts), len(whole)]
    other = [whole[start:end] for start, end in itertools.pairwise(bounds)]

    def key(pieces: list[bytes]) -> str:
        tensors = {
            f"t{place}": torch.tensor(list(piece), dtype=torch.uint8)
            for place, piece in enumerate(pieces)
        }
        return content_key(EncoderCall("t0", tensors, {}, {}), {})

    assert (parts == other) == (key(parts) == key(other))


@pytest.mark.parametrize("value", [object(), {1, 2}, [object()], {"a": object()}, b"bytes"])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    """A setting whose content can't be told is not guessed at."""
    with pytest.raises(TypeError, match="plain data"):
        plain(value)


def test_plain_data_keeps_what_it_says() -> None:
    """Numbers, texts and their collections come out as they went in."""
    assert [1, True, None, "a", 0.5] == plain((1, True, None, "a", 0.5))
    assert {"dtype": "torch.bfloat16", "on": "cpu"} == plain(
        {"dtype": torch.bfloat16, "on": torch.device("cpu")}
    )
    assert math.inf == plain(math.inf)


def method(
    pixel_values: torch.Tensor,
    layer: int = -2,
    *rest: object,
    return_dict: bool | None = None,
    **kwargs: object,
) -> None:
    """An encoder method with every kind of parameter."""


SIGNATURE = inspect.signature(method)


def test_a_call_is_known_by_names_however_it_was_written() -> None:
    """By place, by name or by default: one call."""
    calls = [
        bind(SIGNATURE, (PIXELS,), {}),
        bind(SIGNATURE, (PIXELS, -2), {}),
        bind(SIGNATURE, (), {"pixel_values": PIXELS, "layer": -2, "return_dict": True}),
        bind(SIGNATURE, (PIXELS,), {"output_attentions": False}),
    ]
    assert 1 == len({content_key(call, CONTEXT) for call in calls})
    assert all({"pixel_values", "layer"} == call.arguments.keys() for call in calls)


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, Bypass.ARGUMENTS),
        (([PIXELS],), {}, Bypass.ARGUMENTS),
        ((PIXELS, -2, "more"), {}, Bypass.ARGUMENTS),
        ((PIXELS,), {"sizes": [PIXELS]}, Bypass.ARGUMENTS),
        ((PIXELS,), {"mask": PIXELS.to_sparse()}, Bypass.ARGUMENTS),
        ((PIXELS.to("meta"),), {}, Bypass.ARGUMENTS),
        ((PIXELS,), {"return_dict": False}, Bypass.POSITIONAL),
        ((PIXELS,), {"output_router_logits": True}, Bypass.INTERMEDIATES),
    ],
    ids=str,
)
def test_a_call_that_cannot_be_told_is_not_cached(
    args: tuple[object, ...], kwargs: dict[str, object], reason: Bypass
) -> None:
    """The reason is named."""
    with pytest.raises(UncacheableError) as caught:
        bind(SIGNATURE, args, kwargs)
    assert reason is caught.value.reason


ROWS = Convention(Division.ROWS, rank=3, beside=frozenset({"mask"}))
GRID = Convention(Division.GRID, rank=2, beside=frozenset({"grid"}))
PATCHES = torch.arange(12.0).reshape(6, 2)
UNDIVIDED = {
    "another rank": (ROWS, {"x": PATCHES}),
    "an unknown tensor": (ROWS, {"x": PIXELS, "sizes": torch.zeros(2)}),
    "a mask of another length": (ROWS, {"x": PIXELS, "mask": torch.zeros(3)}),
    "a scalar mask": (ROWS, {"x": PIXELS, "mask": torch.tensor(2)}),
    "no items": (ROWS, {"x": PIXELS[:0]}),
    "no grid": (GRID, {"x": PATCHES}),
    "a grid that does not add up": (GRID, {"x": PATCHES, "grid": torch.tensor([[1, 2, 2]])}),
    "an empty item": (GRID, {"x": PATCHES, "grid": torch.tensor([[1, 2, 3], [0, 1, 1]])}),
    "a flat grid": (GRID, {"x": PATCHES, "grid": torch.tensor([6])}),
    "a grid of floats": (GRID, {"x": PATCHES, "grid": torch.tensor([[1.0, 2.0, 3.0]])}),
    "no items in the grid": (GRID, {"x": PATCHES[:0], "grid": torch.zeros(0, 3).long()}),
    "nothing known": (Convention(), {"x": PIXELS}),
}


@pytest.mark.parametrize(("convention", "tensors"), UNDIVIDED.values(), ids=UNDIVIDED)
def test_what_does_not_fit_the_convention_is_not_divided(
    convention: Convention, tensors: dict[str, torch.Tensor]
) -> None:
    """A call is cut only where it is clear where."""
    assert divide(EncoderCall("x", tensors, {}, {}), convention) is None


def test_rows_and_patches_go_to_their_items() -> None:
    """Every tensor's part goes with its item, nothing is lost."""
    mask = torch.tensor([[1, 1], [1, 0]])
    first, second = divide(EncoderCall("x", {"x": PIXELS, "mask": mask}, {}, {}), ROWS) or []
    assert torch.equal(PIXELS[1:], second.tensors["x"])
    assert [[1, 1]] == first.tensors["mask"].tolist()
    grid = torch.tensor([[1, 2, 2], [2, 1, 1]])
    first, second = divide(EncoderCall("x", {"x": PATCHES, "grid": grid}, {}, {}), GRID) or []
    assert torch.equal(PATCHES[:4], first.tensors["x"])
    assert torch.equal(PATCHES[4:], second.tensors["x"])
    assert [[2, 1, 1]] == second.tensors["grid"].tolist()
