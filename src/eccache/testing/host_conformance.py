"""What every host framework does: the port's docstrings, sentence by sentence, as tests.

For a framework of your own, with a `Tensor` of its own:

```python
class TestMyFramework(HostFrameworkConformance[Tensor]):
    dtypes = ("float32", "int64")

    def make_host(self) -> MyFramework:
        return MyFramework()

    def make_tensor(self, spec: TensorSpec, payload: bytes) -> Tensor: ...

    def read(self, tensor: Tensor) -> bytes: ...

    def overwrite(self, tensor: Tensor) -> None: ...

    def transpose(self, tensor: Tensor) -> Tensor: ...

    def first_row(self, tensor: Tensor) -> Tensor: ...

    def refused(self) -> list[object]: ...
```

The six methods besides `make_host` must not use the framework under test: they are what it is compared with.
Tensors must be weakly referable.
"""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

import pytest

from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.host_framework import HostFramework, Staged
from eccache.testing.allocator import CountingAllocator

T = TypeVar("T")

SHAPES = ((), (0, 3), (4, 0), (1,), (5, 7), (1, 2, 3, 1, 2, 1, 1, 2))


class _HostTests(Generic[T]):
    """The factories and what tests use of them."""

    dtypes: ClassVar[tuple[str, ...]]
    """Every dtype that the framework has, under torch's names."""

    def make_host(self) -> HostFramework[T]:
        """Return the framework under test."""
        raise NotImplementedError

    def make_tensor(self, spec: TensorSpec, payload: bytes) -> T:
        """Return a new tensor of *spec* on the CPU, with row-major, little-endian bytes *payload*."""
        raise NotImplementedError

    def read(self, tensor: T) -> bytes:
        """Return the tensor's elements as row-major, little-endian bytes."""
        raise NotImplementedError

    def overwrite(self, tensor: T) -> None:
        """Set every element to zero, in place."""
        raise NotImplementedError

    def transpose(self, tensor: T) -> T:
        """Return a view of a 2-D tensor with rows and columns exchanged, not contiguous."""
        raise NotImplementedError

    def first_row(self, tensor: T) -> T:
        """Return a view `[1, columns]` of a 2-D tensor, which keeps all of it alive."""
        raise NotImplementedError

    def refused(self) -> list[object]:
        """Return what is no dense tensor of a storable dtype: containers, other kinds, other dtypes."""
        raise NotImplementedError

    @pytest.fixture
    def host(self) -> HostFramework[T]:
        """The framework under test."""
        return self.make_host()

    @pytest.fixture
    def allocator(self) -> CountingAllocator:
        """Room for everything."""
        return CountingAllocator()

    def samples(self) -> Iterator[tuple[TensorSpec, bytes]]:
        """Yield specs of every dtype in every form, with random bits."""
        source = random.Random(0)  # noqa: S311 - test data
        for dtype in self.dtypes:
            for shape in SHAPES:
                spec = TensorSpec(dtype, shape)
                bits = source.randbytes(spec.nbytes)
                yield spec, bytes(bit & 1 for bit in bits) if dtype == "bool" else bits

    def sample(self, shape: tuple[int, ...] = (5, 7)) -> tuple[TensorSpec, bytes]:
        """Return one of them."""
        spec = TensorSpec(self.dtypes[0], shape)
        return spec, random.Random(1).randbytes(spec.nbytes)  # noqa: S311 - test data


def taken(staged: Staged) -> bytes:
    """Return the bytes of *staged*, and give it back."""
    payload = joined(staged)
    staged.release()
    return payload


def joined(staged: Staged) -> bytes:
    """Return the bytes of *staged*: each piece is taken before the next one is asked for."""
    return b"".join(bytes(piece) for piece in staged.pieces())


class HostFrameworkConformance(_HostTests[T]):
    """Subclass, define `dtypes` and seven short methods, done."""

    def test_spec_says_dtype_and_shape(self, host: HostFramework[T]) -> None:
        """Of every dtype, rank 0 to 8, empty or not."""
        for spec, payload in self.samples():
            assert spec == host.spec(self.make_tensor(spec, payload))

    def test_spec_refuses_with_advice(self, host: HostFramework[T]) -> None:
        """What is no dense tensor is a TypeError that says what to pass instead."""
        for wrong in self.refused():
            with pytest.raises(TypeError, match=r"\b(pass|put)\b"):
                host.spec(wrong)  # type: ignore[arg-type]  # what a caller without a type checker does

    @pytest.mark.parametrize("borrow", [False, True])
    def test_stage_takes_the_bytes(
        self, host: HostFramework[T], allocator: CountingAllocator, *, borrow: bool
    ) -> None:
        """The pieces are 1-D bytes, together row-major and little-endian; the same if asked again."""
        for spec, payload in self.samples():
            tensor = self.make_tensor(spec, payload)
            staged = host.stage(tensor, allocator, borrow=borrow)
            assert staged is not None
            assert spec == staged.spec
            assert {("B", 1)} >= {(piece.format, piece.ndim) for piece in staged.pieces()}
            assert [payload] * 2 == [joined(staged), joined(staged)]
            assert staged.unchanged()
            staged.release()

    @pytest.mark.parametrize("borrow", [False, True])
    def test_stage_orders_the_bytes_of_a_view(
        self, host: HostFramework[T], allocator: CountingAllocator, *, borrow: bool
    ) -> None:
        """A tensor that is not contiguous is staged in the order of its elements."""
        view = self.transpose(self.make_tensor(*self.sample()))
        staged = host.stage(view, allocator, borrow=borrow)
        assert staged is not None
        assert (7, 5) == staged.spec.shape
        assert self.read(view) == taken(staged)

    @pytest.mark.parametrize("borrow", [False, True])
    def test_stage_without_room_is_none(self, host: HostFramework[T], *, borrow: bool) -> None:
        """Pressure is the one reason for None, and costs nothing."""
        spec, payload = self.sample()
        allocator = CountingAllocator(spec.nbytes - 1)
        assert host.stage(self.make_tensor(spec, payload), allocator, borrow=borrow) is None
        assert 0 == allocator.in_flight_nbytes

    @pytest.mark.parametrize("borrow", [False, True])
    def test_stage_charges_until_released(
        self, host: HostFramework[T], allocator: CountingAllocator, *, borrow: bool
    ) -> None:
        """The allocator is charged with the tensor's bytes until `release`, which may come twice."""
        spec, payload = self.sample()
        staged = host.stage(self.make_tensor(spec, payload), allocator, borrow=borrow)
        assert staged is not None
        joined(staged)
        assert allocator.in_flight_nbytes >= spec.nbytes
        staged.release()
        staged.release()
        assert 0 == allocator.in_flight_nbytes

    def test_a_borrowed_view_is_charged_with_all_that_it_keeps_alive(
        self, host: HostFramework[T], allocator: CountingAllocator
    ) -> None:
        """A row of a batch costs the batch, or is copied."""
        spec, payload = self.sample()
        view = self.first_row(self.make_tensor(spec, payload))
        staged = host.stage(view, allocator, borrow=True)
        assert staged is not None
        held = allocator.in_flight_nbytes
        alive = weakref.ref(view)
        del view
        gc.collect()
        assert held >= spec.nbytes or alive() is None
        assert payload[: spec.nbytes // 5] == taken(staged)

    def test_a_copied_tensor_may_change_at_once(
        self, host: HostFramework[T], allocator: CountingAllocator
    ) -> None:
        """With borrow=False the caller may reuse the tensor when `stage` has returned."""
        spec, payload = self.sample()
        tensor = self.make_tensor(spec, payload)
        staged = host.stage(tensor, allocator, borrow=False)
        assert staged is not None
        self.overwrite(tensor)
        assert staged.unchanged()
        assert payload == taken(staged)

    @pytest.mark.parametrize("borrow", [False, True])
    def test_a_released_tensor_is_let_go(
        self, host: HostFramework[T], allocator: CountingAllocator, *, borrow: bool
    ) -> None:
        """Nothing keeps the tensor alive after `release`."""
        tensor = self.make_tensor(*self.sample())
        staged = host.stage(tensor, allocator, borrow=borrow)
        assert staged is not None
        joined(staged)
        staged.release()
        alive = weakref.ref(tensor)
        del tensor
        gc.collect()
        assert alive() is None

    def test_build_makes_the_tensor(self, host: HostFramework[T]) -> None:
        """Of every dtype and form, with the same bits, on the CPU."""
        for spec, payload in self.samples():
            tensor = host.build(spec, memoryview(bytearray(payload)), "cpu")
            assert spec == host.spec(tensor)
            assert payload == self.read(tensor)

    def test_a_built_tensor_keeps_its_payload(self, host: HostFramework[T]) -> None:
        """A tensor that aliases the payload keeps it alive."""
        spec, payload = self.sample((64, 1024))
        memory = bytearray(payload)
        tensor = host.build(spec, memoryview(memory), "cpu")
        del memory
        gc.collect()
        others = [bytearray(spec.nbytes) for _ in range(8)]
        assert payload == self.read(tensor)
        assert 8 == len(others)

    def test_build_on_an_unknown_device_fails(self, host: HostFramework[T]) -> None:
        """A device that is not there is an error, and not another device."""
        spec, payload = self.sample()
        with pytest.raises((RuntimeError, ValueError, AssertionError)):
            host.build(spec, memoryview(bytearray(payload)), "no-such-device:7")

    def test_any_thread_may_stage_and_build(
        self, host: HostFramework[T], allocator: CountingAllocator
    ) -> None:
        """What one thread staged another takes; several at once don't disturb one another."""
        wrong: list[int] = []

        def work(staged: Staged, expected: bytes, place: int) -> None:
            for _ in range(20):
                if joined(staged) != expected:
                    wrong.append(place)
                again = host.build(staged.spec, memoryview(bytearray(expected)), "cpu")
                if self.read(again) != expected:
                    wrong.append(place)
            staged.release()

        threads = []
        for place, (spec, payload) in enumerate(self.samples()):
            staged = host.stage(self.make_tensor(spec, payload), allocator, borrow=place % 2 == 0)
            assert staged is not None
            threads.append(threading.Thread(target=work, args=(staged, payload, place)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [] == wrong
        assert 0 == allocator.in_flight_nbytes
