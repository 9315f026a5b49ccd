"""Tensors on their way to the host: borrowed, copied, or still on a device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from eccache.adapters.torch.memory import bytes_of, tensor_over
from eccache.adapters.torch.transfer import Device, Mark
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.allocator import HostAllocator, HostBuffer

_NOTHING = torch.empty(0)


def storage_nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes that *tensor* keeps alive: those of its whole storage.

    `_is_view()` would not tell: it is False for views made under inference mode.
    """
    return max(tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size())


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous tensor as 1-D uint8, on its device, without a copy."""
    return tensor.reshape(-1).view(torch.uint8)


def _version(tensor: torch.Tensor) -> int | None:
    """Return torch's count of in-place changes; None where torch keeps none."""
    return None if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch's documented counter


class BorrowedTensor:
    """A contiguous CPU tensor used where it lies. Implements `ports.host_framework.Staged`.

    Args:
        source: the caller's tensor, watched for in-place changes.
        plain: the same memory without gradient, conjugation or negation.
        spec: its element type and shape.
        budget: released with this.
    """

    def __init__(
        self, source: torch.Tensor, plain: torch.Tensor, spec: TensorSpec, budget: HostBuffer
    ) -> None:
        self.spec = spec
        self._source = source
        self._plain = plain
        self._version = _version(source)
        self._budget = budget

    def pieces(self) -> Iterator[memoryview]:
        """Yield the tensor's own memory."""
        yield bytes_of(self._plain)

    def unchanged(self) -> bool:
        """Return False if torch has counted an in-place change since."""
        return self._version == _version(self._source)

    def release(self) -> None:
        """Let go of the tensor and the budget."""
        self._source = self._plain = _NOTHING
        self._budget.release()


class DeviceTensor:
    """A contiguous tensor that stays on its device until its bytes are asked for.

    Implements `ports.host_framework.Staged`.

    Args:
        source: the caller's tensor, watched for in-place changes.
        plain: the bytes to store, on the device.
        spec: element type and shape.
        budget: released with this.
        ready: where in the device's work *plain* is complete.
        device: copies from it.
    """

    def __init__(
        self,
        source: torch.Tensor,
        plain: torch.Tensor,
        spec: TensorSpec,
        budget: HostBuffer,
        ready: Mark,
        device: Device,
    ) -> None:
        self.spec = spec
        self._source = source
        self._flat = flat(plain)
        self._version = _version(source)
        self._budget = budget
        self._ready = ready
        self._device = device

    def pieces(self) -> Iterator[memoryview]:
        """Yield pieces of pinned memory while the device copies the next ones."""
        with self._device.ring() as ring:
            for piece in ring.download(self._flat, self._ready):
                yield bytes_of(piece)

    def unchanged(self) -> bool:
        """Return False if torch has counted an in-place change since."""
        return self._version == _version(self._source)

    def release(self) -> None:
        """Let go of the tensor and the budget."""
        self._source = self._flat = _NOTHING
        self._budget.release()


class CopiedTensor:
    """A tensor's bytes in a buffer of ours. Implements `ports.host_framework.Staged`.

    Args:
        spec: element type and shape.
        buffer: holds the bytes.
    """

    def __init__(self, spec: TensorSpec, buffer: HostBuffer) -> None:
        self.spec = spec
        self._buffer = buffer

    def pieces(self) -> Iterator[memoryview]:
        """Yield the buffer."""
        yield self._buffer.memory

    def unchanged(self) -> bool:
        """Return True: nobody else has the buffer."""
        return True

    def release(self) -> None:
        """Give the buffer back."""
        self._buffer.release()


def stage_copy(
    plain: torch.Tensor, spec: TensorSpec, allocator: HostAllocator
) -> CopiedTensor | None:
    """Copy a CPU tensor, of any strides, into a buffer of *allocator*."""
    buffer = allocator.acquire(spec.nbytes, memory=True)
    if buffer is None:
        return None
    tensor_over(buffer.memory, spec).copy_(plain)
    return CopiedTensor(spec, buffer)
