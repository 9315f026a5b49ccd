"""The host-framework port on torch."""

from __future__ import annotations

import torch

from eccache.adapters.torch.memory import tensor_over
from eccache.adapters.torch.staging import (
    BorrowedTensor,
    stage_copy,
    stage_from_cuda,
    storage_nbytes,
)
from eccache.domain.dtypes import DTYPES
from eccache.domain.tensor_spec import MAX_RANK, TensorSpec
from eccache.ports.allocator import HostAllocator
from eccache.ports.host_framework import Staged


class TorchFramework:
    """Implements `ports.host_framework.HostFramework[torch.Tensor]`. Any thread may call it."""

    def spec(self, tensor: torch.Tensor) -> TensorSpec:
        """Return element type and shape of *tensor*.

        Raises:
            TypeError: *tensor* is a tuple or list, sparse, quantized, nested, without data (`meta`), of
                rank above 8, or of a dtype that safetensors does not know.
        """
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            msg = f"an entry is one dense torch.Tensor, not a {kind}; put each tensor under its own id"
            raise TypeError(msg)
        if tensor.is_nested or tensor.layout is not torch.strided:
            msg = "an entry is a dense tensor; pass tensor.to_dense() (nested: to_padded_tensor)"
            raise TypeError(msg)
        if tensor.is_quantized:
            msg = (
                "a quantized tensor can't be stored; pass tensor.dequantize() or tensor.int_repr()"
            )
            raise TypeError(msg)
        if tensor.is_meta:
            msg = "a tensor on the meta device has no data; pass one that has"
            raise TypeError(msg)
        name = str(tensor.dtype).removeprefix("torch.")
        if name not in DTYPES:
            msg = f"dtype {name} is unknown to safetensors; pass tensor.to(...) one of {sorted(DTYPES)}"
            raise TypeError(msg)
        if tensor.dim() > MAX_RANK:
            msg = f"rank {tensor.dim()} is above {MAX_RANK}; pass tensor.flatten(...)"
            raise TypeError(msg)
        return TensorSpec(name, tuple(tensor.shape))

    def stage(
        self, tensor: torch.Tensor, allocator: HostAllocator, *, borrow: bool
    ) -> Staged | None:
        """Start moving *tensor*'s bytes to the host; None when the allocator has no room now.

        On CUDA this is one event and a queued copy on a side stream; nothing waits for the device.
        """
        spec = self.spec(tensor)
        with torch.inference_mode():
            plain = tensor.detach().resolve_conj().resolve_neg()
            if plain.is_cuda:
                return stage_from_cuda(plain, spec, allocator, borrow=borrow)
            if plain.device.type != "cpu":
                plain = plain.cpu()
                borrow = True  # our own copy: nobody else can change it
            if borrow and plain.is_contiguous():
                budget = allocator.acquire(storage_nbytes(plain), memory=False)
                return None if budget is None else BorrowedTensor(tensor, plain, spec, budget)
            return stage_copy(plain, spec, allocator)

    def build(self, spec: TensorSpec, payload: memoryview, device: str) -> torch.Tensor:
        """Return the tensor of *spec* over *payload*: an alias of it on the CPU, else a copy on *device*."""
        tensor = tensor_over(payload, spec)
        return tensor if device == "cpu" else tensor.to(device)
