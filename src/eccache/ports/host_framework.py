"""Host-framework port: what a tensor is, how its bytes are had, how a tensor is made of bytes.

The engine only moves values of type `T` between calls of this port; it never looks into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.allocator import HostAllocator

T = TypeVar("T")
"""The framework's tensor type."""


class Staged(Protocol):
    """A tensor's bytes on their way to the host. Used by one thread, once."""

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape."""
        ...

    def pieces(self) -> Iterator[memoryview]:
        """Yield the bytes in order, each piece when it is there: a copy from a device may be under way.

        May be called again, until `release`.

        Yields:
            1-D bytes, together row-major, little-endian, of length `spec.nbytes`. Each piece is valid until
            the next one is asked for, or the iterator closed.
        """
        ...

    def unchanged(self) -> bool:
        """Return False if the source was seen to change since it was staged."""
        ...

    def release(self) -> None:
        """Give everything back. Idempotent, never raises."""
        ...


class HostFramework(Protocol[T]):
    """What eccache needs of a tensor framework. Any thread may call it."""

    def spec(self, tensor: T) -> TensorSpec:
        """Return element type and shape of *tensor*.

        Raises:
            TypeError: it is not one dense tensor of a storable dtype; says what to pass instead.
        """
        ...

    def stage(self, tensor: T, allocator: HostAllocator, *, borrow: bool) -> Staged | None:
        """Start moving *tensor*'s bytes to the host; None when the allocator has no room now.

        Never waits for the device.

        Args:
            tensor: any dense tensor, contiguous or not.
            allocator: charged until the result is released; a view that keeps a larger storage alive
                is charged with the whole storage.
            borrow: True: the caller leaves *tensor* unchanged until the bytes have been written, and
                nothing is copied that need not be. False: the caller may change it at once.
        """
        ...

    def build(self, spec: TensorSpec, payload: memoryview, device: str) -> T:
        """Return the tensor of *spec* whose bytes are *payload*, on *device*.

        Args:
            spec: element type and shape.
            payload: writable 1-D bytes of length `spec.nbytes`, which stay unchanged; a result that
                aliases them keeps them alive.
            device: as the framework names it, e.g. `"cpu"` or `"cuda:1"`.
        """
        ...
