"""A tensor's spec is exact, and bounded whatever a header claims."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from eccache.domain.dtypes import DTYPES
from eccache.domain.tensor_spec import MAX_DIM, MAX_NBYTES, TensorSpec

SHAPES = st.lists(st.integers(0, 5), max_size=8)


@given(st.sampled_from(sorted(DTYPES)), SHAPES)
def test_a_spec_has_the_size_that_torch_gives(name: str, shape: list[int]) -> None:
    """Bytes of payload are torch's, for every dtype and rank, also where a dimension is zero."""
    spec = TensorSpec(name, shape)
    tensor = torch.empty(shape, dtype=getattr(torch, name))
    assert tensor.numel() * tensor.element_size() == spec.nbytes
    assert tuple(shape) == spec.shape
    assert (shape[0] if shape else None) == spec.rows


def test_a_scalar_has_no_rows() -> None:
    """A tensor of rank 0 is one element."""
    spec = TensorSpec("float32", ())
    assert spec.rows is None
    assert spec.nbytes == 4


@pytest.mark.parametrize(
    "shape", [(-1,), (1.0,), (True,), ("1",), (None,), (1,) * 9, (0, MAX_DIM + 1), (10**5000,)]
)
def test_what_is_no_shape_is_refused(shape: tuple[int, ...]) -> None:
    """Neither negative, nor no int, nor above 8 dimensions, nor beyond what an offset can hold."""
    with pytest.raises(ValueError, match=r"dimension|rank|digits"):
        TensorSpec("float32", shape)


def test_a_size_beyond_the_bound_is_refused() -> None:
    """The bound holds to the byte, and dimensions that would overflow 64 bits don't."""
    assert TensorSpec("uint8", (MAX_NBYTES,)).nbytes == MAX_NBYTES
    with pytest.raises(ValueError, match="above"):
        TensorSpec("float16", (MAX_NBYTES // 2 + 1,))
    with pytest.raises(ValueError, match="above"):
        TensorSpec("uint8", (2**32, 2**32))


def test_an_empty_tensor_may_be_wide() -> None:
    """Zero rows of any width take no bytes."""
    assert TensorSpec("float32", (0, 3584)).nbytes == 0


def test_specs_are_equal_by_value() -> None:
    """However dtype and shape were written."""
    spec = TensorSpec("half", [2, 3])
    assert TensorSpec(torch.float16, torch.empty(2, 3).shape) == spec
    assert spec.nbytes == math.prod(spec.shape) * 2
