"""Torch tensors go in and come out with the same bits."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable

import pytest
import torch

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.torch import TorchFramework, host_memory
from eccache.adapters.torch.memory import bytes_of
from eccache.domain.dtypes import DTYPES
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.host_conformance import joined

GENEROUS = 1 << 30
SHAPES = [(), (0, 3), (4, 0), (5, 7), (1, 2, 3, 1, 2, 1, 1, 2)]


@pytest.fixture
def host() -> TorchFramework:
    """The adapter."""
    return TorchFramework()


@pytest.fixture
def allocator() -> PooledAllocator:
    """A generous allocator."""
    return PooledAllocator(GENEROUS, host_memory)


def random_tensor(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of random bits (for bool: of 0 and 1)."""
    nbytes = math.prod(shape) * DTYPES[dtype].itemsize
    high = 2 if dtype == "bool" else 256
    bits = torch.randint(0, high, (nbytes,), dtype=torch.uint8)
    return bits.view(getattr(torch, dtype)).reshape(shape)


def through(
    host: TorchFramework, allocator: PooledAllocator, tensor: torch.Tensor, *, borrow: bool
) -> torch.Tensor:
    """What comes out when *tensor* goes in."""
    staged = host.stage(tensor, allocator, borrow=borrow)
    assert staged is not None
    payload = memoryview(bytearray(joined(staged)))
    staged.release()
    return host.build(staged.spec, payload, "cpu")


@pytest.mark.parametrize("borrow", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_dtype_and_rank_keeps_its_bits(
    host: TorchFramework,
    allocator: PooledAllocator,
    dtype: str,
    shape: tuple[int, ...],
    borrow: bool,  # noqa: FBT001
) -> None:
    """Dtype, shape and bits are those of the tensor that was put."""
    tensor = random_tensor(dtype, shape)
    found = through(host, allocator, tensor, borrow=borrow)
    assert (tensor.dtype, tensor.shape) == (found.dtype, found.shape)
    assert bytes(bytes_of(tensor)) == bytes(bytes_of(found))
    assert 0 == allocator.in_flight_nbytes


@pytest.mark.parametrize("borrow", [False, True])
def test_strides_gradients_conjugation_and_negation_are_resolved(
    host: TorchFramework,
    allocator: PooledAllocator,
    borrow: bool,  # noqa: FBT001
) -> None:
    """What torch keeps lazily is what it means, not what lies in memory."""
    base = torch.randn(6, 4, dtype=torch.complex64)
    for tensor in (base.t(), base[::2], base.conj(), base.conj().imag, torch.randn(3).expand(5, 3)):
        assert torch.equal(tensor.resolve_neg(), through(host, allocator, tensor, borrow=borrow))
    parameter = torch.nn.Parameter(torch.randn(3, 2))
    found = through(host, allocator, parameter, borrow=borrow)
    assert torch.equal(parameter.detach(), found)
    assert not found.requires_grad


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a tuple": (lambda: (torch.zeros(1),), "put each tensor under its own id"),
    "a list": (lambda: [torch.zeros(1)], "put each tensor under its own id"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8),
        "dequantize",
    ),
    "complex128": (lambda: torch.zeros(1, dtype=torch.complex128), "tensor.to"),
    "meta": (lambda: torch.empty(2, device="meta"), "pass one that has"),
    "rank 9": (lambda: torch.zeros([1] * 9), "flatten"),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        "to_padded_tensor",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, on quantized and nested tensors
def test_what_is_no_dense_tensor_is_refused_with_advice(host: TorchFramework, kind: str) -> None:
    """A TypeError says what to pass instead."""
    make, advice = REFUSED[kind]
    with pytest.raises(TypeError, match=advice):
        host.spec(make())  # type: ignore[arg-type]  # what a caller without a type checker may do


def test_a_copied_put_does_not_see_later_changes(
    host: TorchFramework, allocator: PooledAllocator
) -> None:
    """The caller may reuse its tensor as soon as the put has returned."""
    tensor = torch.ones(8)
    staged = host.stage(tensor, allocator, borrow=False)
    assert staged is not None
    tensor.zero_()
    assert staged.unchanged()
    assert bytes(bytes_of(torch.ones(8))) == joined(staged)


def test_a_borrowed_tensor_is_not_copied_and_a_change_is_seen(
    host: TorchFramework, allocator: PooledAllocator
) -> None:
    """Borrowing costs nothing, and torch's own count of changes is watched."""
    tensor = torch.ones(8)
    staged = host.stage(tensor, allocator, borrow=True)
    assert staged is not None
    assert staged.unchanged()
    tensor.zero_()
    assert bytes(bytes_of(torch.zeros(8))) == joined(staged)
    assert not staged.unchanged()


def test_a_view_under_inference_mode_is_borrowed_and_charged_with_its_whole_storage(
    host: TorchFramework, allocator: PooledAllocator
) -> None:
    """A view of a batch keeps the batch alive, so the batch is what it costs."""
    with torch.inference_mode():
        batch = torch.ones(10, 100)
        one = batch.split([4, 6])[0]
        staged = host.stage(one, allocator, borrow=True)
    assert staged is not None
    assert 4000 == allocator.in_flight_nbytes
    assert 1600 == len(joined(staged))
    assert staged.unchanged()
    staged.release()
    assert 0 == allocator.in_flight_nbytes


def test_a_borrowed_tensor_is_let_go_when_released(
    host: TorchFramework, allocator: PooledAllocator
) -> None:
    """A stored tensor is not kept."""
    tensor = torch.ones(8)
    alive = weakref.ref(tensor)
    staged = host.stage(tensor, allocator, borrow=True)
    assert staged is not None
    del tensor
    assert alive() is not None
    staged.release()
    staged.release()
    gc.collect()
    assert alive() is None


def test_a_built_tensor_aliases_its_payload_and_keeps_it_alive(host: TorchFramework) -> None:
    """On the CPU nothing is copied."""
    payload = memoryview(bytearray(b"\1\0\2\0"))
    tensor = host.build(TensorSpec("int16", (2,)), payload, "cpu")
    payload[0] = 9
    del payload
    assert [9, 2] == tensor.tolist()


def test_a_device_is_passed_on_as_it_was_named(host: TorchFramework) -> None:
    """`device` decides where a tensor goes, whatever device it came from."""
    with pytest.raises((RuntimeError, AssertionError), match=r"(?i)cuda"):
        host.build(TensorSpec("uint8", (2,)), memoryview(bytearray(2)), "cuda:1")
    assert (
        "meta"
        == host.build(TensorSpec("uint8", (2,)), memoryview(bytearray(2)), "meta").device.type
    )


@pytest.mark.parametrize("borrow", [False, True])
def test_no_room_is_none(
    host: TorchFramework,
    borrow: bool,  # noqa: FBT001
) -> None:
    """Pressure is the one reason for which nothing is staged."""
    allocator = PooledAllocator(100)
    first = allocator.acquire(90, memory=False)
    assert first is not None
    assert host.stage(torch.ones(8), allocator, borrow=borrow) is None
    first.release()
    assert host.stage(torch.ones(800), allocator, borrow=borrow) is not None
