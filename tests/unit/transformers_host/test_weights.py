"""Weights are known by their content, and a change to them is noticed."""

from __future__ import annotations

import math

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from eccache.adapters.transformers.weights import (
    SAMPLES_PER_TENSOR,
    WeightSamples,
    weights_digest,
)

WEIGHTS = [("a", torch.arange(6.0).reshape(2, 3)), ("b", torch.ones(4, dtype=torch.bfloat16))]
OTHERS = {
    "a bit": [("a", WEIGHTS[0][1].nextafter(torch.tensor(9.0))), WEIGHTS[1]],
    "a shape": [("a", WEIGHTS[0][1].reshape(3, 2)), WEIGHTS[1]],
    "a dtype": [("a", WEIGHTS[0][1].view(torch.int32)), WEIGHTS[1]],
    "a name": [("c", WEIGHTS[0][1]), WEIGHTS[1]],
    "names swapped": [("b", WEIGHTS[0][1]), ("a", WEIGHTS[1][1])],
    "one less": WEIGHTS[:1],
    "one more": [*WEIGHTS, ("c", torch.zeros(0))],
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_weights_have_another_digest(other: list[tuple[str, torch.Tensor]]) -> None:
    """To the bit, by name and form."""
    assert weights_digest(WEIGHTS) != weights_digest(other)


def test_equal_weights_have_one_digest() -> None:
    """Neither order nor memory layout counts."""
    twins = [(name, tensor.clone()) for name, tensor in reversed(WEIGHTS)]
    twins[1] = ("a", WEIGHTS[0][1].T.contiguous().T)
    assert weights_digest(WEIGHTS) == weights_digest(twins)


DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("numel", [1, 63, 64, 65, 1000, 5000])
def test_a_change_of_every_element_shows_in_the_samples(dtype: torch.dtype, numel: int) -> None:
    """However the memory was reached, of any dtype and size."""
    weight = torch.zeros(numel).to(dtype)
    samples = WeightSamples([("a", weight)])
    before = samples.read()
    assert before == samples.read()
    weight.data.copy_(torch.ones(numel))
    assert before != samples.read()


@hypothesis.given(numel=st.integers(1, 2000), place=st.floats(0, 1, exclude_max=True))
@hypothesis.example(numel=127, place=0.75)
def test_samples_lie_all_over_a_tensor(numel: int, place: float) -> None:
    """A change of as many neighbours as one sample stands for shows, wherever it is."""
    weight = torch.zeros(numel)
    samples = WeightSamples([("a", weight)])
    before = samples.read()
    step = math.ceil(numel / SAMPLES_PER_TENSOR)
    start = min(int(place * numel), max(0, numel - 2 * step))
    weight.data[start : start + step] = 1
    assert before != samples.read()


ODD = {
    "empty": torch.zeros(0, 3),
    "expanded": torch.zeros(1).expand(100),
    "a slice of something": torch.zeros(100)[40:60],
    "transposed": torch.zeros(30, 7).T,
    "channels last": torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "complex": torch.zeros(5, dtype=torch.complex128),
    "made under inference mode": torch.inference_mode()(lambda: torch.zeros(9))(),
}


@pytest.mark.parametrize("weight", ODD.values(), ids=ODD)
def test_tensors_of_any_layout_are_sampled(weight: torch.Tensor) -> None:
    """No memory is read that is not the tensor's."""
    samples = WeightSamples([("a", weight)])
    assert len(samples.read()) <= SAMPLES_PER_TENSOR * weight.element_size()
    assert 64 == len(weights_digest([("a", weight)]))
