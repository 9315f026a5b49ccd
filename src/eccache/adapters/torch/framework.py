"""The host-framework port on torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from eccache.adapters.torch.cuda import device_of
from eccache.adapters.torch.memory import tensor_over
from eccache.adapters.torch.staging import (
    BorrowedTensor,
    DeviceTensor,
    flat,
    stage_copy,
    storage_nbytes,
)
from eccache.adapters.torch.transfer import Device
from eccache.domain.dtypes import DTYPES
from eccache.domain.tensor_spec import MAX_RANK, TensorSpec
from eccache.ports.allocator import HostAllocator
from eccache.ports.host_framework import Staged


class TorchFramework:
    """Implements `ports.host_framework.HostFramework[torch.Tensor]`. Any thread may call it.

    Args:
        make_device: makes what copies to and from a device without waiting for it; None for a device where
            nothing does.
    """

    def __init__(self, make_device: Callable[[torch.device], Device | None] = device_of) -> None:
        self._make_device = make_device
        self._devices: dict[torch.device, Device | None] = {}

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

        On CUDA this records an event, and queues a copy on the device where the caller may change the
        tensor; the bytes come to the host when they are asked for. Nothing waits for the device.
        """
        spec = self.spec(tensor)
        with torch.inference_mode():
            plain = tensor.detach().resolve_conj().resolve_neg()
            device = self._device(plain.device)
            if device is not None:
                return _stage_on_device(tensor, plain, spec, allocator, device, borrow=borrow)
            if plain.device.type != "cpu":
                plain = plain.cpu()
                borrow = True  # our own copy: nobody else can change it
            if borrow and plain.is_contiguous():
                budget = allocator.acquire(storage_nbytes(plain), memory=False)
                return None if budget is None else BorrowedTensor(tensor, plain, spec, budget)
            return stage_copy(plain, spec, allocator)

    def build(self, spec: TensorSpec, payload: memoryview, device: str) -> torch.Tensor:
        """Return the tensor of *spec* over *payload*: an alias of it on the CPU, else a copy on *device*.

        On CUDA the tensor is ready for whatever is queued from now on in the calling thread's current
        stream.
        """
        if device == "cpu":
            return tensor_over(payload, spec)
        target = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
        copies = self._device(target.device)
        if copies is None or not spec.nbytes:
            return target.copy_(tensor_over(payload, spec))
        with copies.ring() as ring:
            ring.upload(torch.frombuffer(payload, dtype=torch.uint8), flat(target))
        return target

    def _device(self, place: torch.device) -> Device | None:
        """Return what copies to and from *place*; should two threads make it at once, both are good."""
        try:
            return self._devices[place]
        except KeyError:
            device = self._devices[place] = self._make_device(place)
            return device


def _stage_on_device(
    tensor: torch.Tensor,
    plain: torch.Tensor,
    spec: TensorSpec,
    allocator: HostAllocator,
    device: Device,
    *,
    borrow: bool,
) -> DeviceTensor | None:
    borrow = borrow and plain.is_contiguous()
    nbytes = storage_nbytes(plain) if borrow else spec.nbytes
    budget = allocator.acquire(nbytes, memory=False)
    if budget is None:
        return None
    if not borrow:  # on the device, where it takes no time, and in order with the caller's work
        tensor = plain = plain.clone(memory_format=torch.contiguous_format)
    return DeviceTensor(tensor, plain, spec, budget, device.here(), device)
