"""Entries are safetensors files: any tool of that ecosystem reads them."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from eccache.domain.dtypes import DTYPES
from eccache.domain.entry_format import TENSOR_NAME
from eccache.domain.frame import FreshFrame
from eccache.domain.tensor_spec import TensorSpec
from tests.unit.domain.frames import REF, whole

SHAPES = [(3, 4), (0, 4), (), (2, 1, 1, 1, 1, 1, 1, 2)]

# safetensors 0.8 and later write these; what they can't load into torch or numpy, they can still list.
TORCH = [name for name in DTYPES if DTYPES[name].safetensors_tag in safetensors.torch._TYPES]  # noqa: SLF001 - what that library says it knows
NUMPY = [name for name in DTYPES if DTYPES[name].safetensors_tag in safetensors.numpy._TYPES]  # noqa: SLF001 - the same


def stored(tmp_path: Path, name: str, shape: tuple[int, ...]) -> tuple[Path, bytes]:
    """A file with an entry of that dtype and shape, and its payload."""
    spec = TensorSpec(name, shape)
    payload = random.Random(1).randbytes(spec.nbytes)
    if name == "bool":
        payload = bytes(byte & 1 for byte in payload)
    path = tmp_path / "entry.safetensors"
    path.write_bytes(whole(FreshFrame(REF, spec, memoryview(payload), {"created": "1"})))
    return path, payload


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TORCH)
def test_torch_loads_an_entry(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Dtype, shape and every bit."""
    path, payload = stored(tmp_path, name, shape)
    tensor = safetensors.torch.load_file(path)[TENSOR_NAME]
    assert getattr(torch, name) is tensor.dtype
    assert shape == tuple(tensor.shape)
    raw = (
        tensor.reshape(-1).view(torch.uint8)
        if tensor.numel()
        else torch.empty(0, dtype=torch.uint8)
    )
    assert payload == bytes(raw.tolist())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NUMPY)
def test_numpy_loads_an_entry(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    """The same without torch."""
    path, payload = stored(tmp_path, name, shape)
    array = safetensors.numpy.load_file(path)[TENSOR_NAME]
    assert np.dtype(name) == array.dtype
    assert shape == array.shape
    assert payload == array.tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_a_valid_file(tmp_path: Path, name: str) -> None:
    """Header, offsets and sizes are right to the library's own checks, for all its dtypes."""
    path, _ = stored(tmp_path, name, (3, 4))
    with safetensors.safe_open(path, "np") as file:
        assert [TENSOR_NAME] == list(file.keys())
        metadata = file.metadata()
        assert "1" == metadata["format"]
        assert name == metadata["dtype"]
        assert "3,4" == metadata["shape"]
        found = file.get_slice(TENSOR_NAME)
        assert DTYPES[name].safetensors_tag == found.get_dtype()
        values = math.prod(found.get_shape())
    assert 12 * DTYPES[name].values_per_element == values


def test_torch_and_numpy_know_what_they_should() -> None:
    """The tables above are not empty by accident."""
    assert 18 <= len(TORCH)
    assert {"float32", "uint8", "bool", "complex64"} <= set(NUMPY)
    assert "bfloat16" in TORCH
