"""Bytes of torch tensors, and torch tensors of bytes."""

from __future__ import annotations

import ctypes

import torch

from eccache.domain.tensor_spec import TensorSpec


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor as writable 1-D bytes, without a copy.

    The result keeps *tensor* alive. Works for every dtype, unlike the way through numpy.
    """
    nbytes = tensor.numel() * tensor.element_size()
    if nbytes == 0:
        return memoryview(bytearray())
    memory = (ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # type: ignore[attr-defined]
    return memoryview(memory).cast("B")


def tensor_over(payload: memoryview, spec: TensorSpec) -> torch.Tensor:
    """Return a CPU tensor that aliases *payload* and keeps it alive.

    Args:
        payload: writable 1-D bytes of length `spec.nbytes`, aligned to the element size.
        spec: element type and shape.
    """
    dtype: torch.dtype = getattr(torch, spec.dtype)
    if spec.nbytes == 0:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.frombuffer(payload, dtype=torch.uint8).view(dtype).reshape(spec.shape)


def host_memory(nbytes: int) -> memoryview:
    """Return *nbytes* of host memory, pinned where there is a CUDA device.

    Raises:
        RuntimeError: there is no memory.
    """
    tensor = torch.empty(nbytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    return bytes_of(tensor)
