"""Bytes of torch tensors, and torch tensors of bytes."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch

from eccache.domain.tensor_spec import TensorSpec


class _Memory(ctypes.Array[ctypes.c_ubyte]):
    """Memory that belongs to a tensor. One type for every length, since ctypes would make one for each."""

    _type_: ClassVar = ctypes.c_ubyte
    _length_: ClassVar = 1 << 46

    owner: torch.Tensor


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor as writable 1-D bytes, without a copy.

    The result keeps *tensor* alive. Works for every dtype, unlike the way through numpy.
    """
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes == 0:
        return memoryview(bytearray())
    memory = _Memory.from_address(tensor.data_ptr())
    memory.owner = tensor
    return memoryview(memory).cast("B")[:nbytes]


def tensor_over(payload: memoryview, spec: TensorSpec) -> torch.Tensor:
    """Return a CPU tensor that aliases *payload* and keeps it alive.

    Args:
        payload: writable 1-D bytes of length `spec.nbytes`, aligned to the element size.
        spec: element type and shape.
    """
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.nbytes == 0:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.frombuffer(payload, dtype=dtype).reshape(spec.shape)


def host_memory(nbytes: int) -> memoryview:
    """Return *nbytes* of memory that nothing has been written to, so that it costs nothing before it is used.

    Raises:
        RuntimeError: there is no memory.
    """
    return bytes_of(torch.empty(nbytes, dtype=torch.uint8))
