"""Tensors on their way to the host: borrowed, copied, or copied from a CUDA device."""

from __future__ import annotations

import torch

from eccache.adapters.torch.memory import bytes_of, tensor_over
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.allocator import HostAllocator, HostBuffer

_NOTHING = torch.empty(0)


def storage_nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes that *tensor* keeps alive: those of its whole storage.

    `_is_view()` would not tell: it is False for views made under inference mode.
    """
    return max(tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size())


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

    def payload(self) -> memoryview:
        """Return the tensor's own memory."""
        return bytes_of(self._plain)

    def unchanged(self) -> bool:
        """Return False if torch has counted an in-place change since."""
        return self._version == _version(self._source)

    def release(self) -> None:
        """Let go of the tensor and the budget."""
        self._source = self._plain = _NOTHING
        self._budget.release()


class CopiedTensor:
    """A tensor's bytes in a buffer of ours. Implements `ports.host_framework.Staged`.

    Args:
        spec: element type and shape.
        buffer: holds the bytes.
        arrived: recorded behind a copy from a device; None where the bytes are there.
        source: kept until the bytes have arrived.
    """

    def __init__(
        self,
        spec: TensorSpec,
        buffer: HostBuffer,
        arrived: torch.cuda.Event | None = None,
        source: torch.Tensor | None = None,
    ) -> None:
        self.spec = spec
        self._buffer = buffer
        self._arrived = arrived
        self._source = source

    def payload(self) -> memoryview:
        """Wait for the device's copy, if there is one, and return the buffer."""
        self._wait()
        return self._buffer.memory

    def unchanged(self) -> bool:
        """Return True: nobody else has the buffer."""
        return True

    def release(self) -> None:
        """Give the buffer back, once nothing writes into it any more."""
        self._wait()
        self._buffer.release()

    def _wait(self) -> None:
        if self._arrived is not None:
            self._arrived.synchronize()
            self._arrived = self._source = None


def stage_copy(
    plain: torch.Tensor, spec: TensorSpec, allocator: HostAllocator
) -> CopiedTensor | None:
    """Copy a CPU tensor, of any strides, into a buffer of *allocator*."""
    buffer = allocator.acquire(spec.nbytes, memory=True)
    if buffer is None:
        return None
    tensor_over(buffer.memory, spec).copy_(plain)
    return CopiedTensor(spec, buffer)


_side_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return this process's copy stream on *device*; two made in a race are both good."""
    stream = _side_streams.get(device)
    if stream is None:
        stream = _side_streams[device] = torch.cuda.Stream(device)
    return stream


def stage_from_cuda(
    plain: torch.Tensor, spec: TensorSpec, allocator: HostAllocator, *, borrow: bool
) -> CopiedTensor | None:
    """Queue a copy of a CUDA tensor into pinned memory behind all work queued so far.

    The copy runs on a side stream, so that the caller's stream does not wait for it; where the caller
    may overwrite the tensor at once, its stream is told to wait, on the device, for the copy.
    """
    buffer = allocator.acquire(spec.nbytes, memory=True)
    if buffer is None:
        return None
    current = torch.cuda.current_stream(plain.device)
    side = _side_stream(plain.device)
    with torch.cuda.device(plain.device):
        side.wait_stream(current)
        with torch.cuda.stream(side):
            tensor_over(buffer.memory, spec).copy_(plain, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(side)
        plain.record_stream(
            side
        )  # the allocator must not hand its memory out before the copy is done
        if not borrow:
            current.wait_event(arrived)
    return CopiedTensor(spec, buffer, arrived, plain)
