"""Driving port: how a framework that computes in one process reaches the cache."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")
"""The framework's tensor type."""


class TensorCache(Protocol[T]):
    """Tensors by id. Any thread may call it; a fault is a miss."""

    def get(self, mm_hash: str, device: str = "cpu") -> T | None:
        """Return the tensor that was put as *mm_hash*, bit for bit; None means a miss, nothing else.

        Raises:
            ClosedError: the cache was closed.
        """
        ...

    def put(self, mm_hash: str, tensor: T, *, borrow: bool = False) -> bool:
        """Store *tensor* in the background; False if no buffer could be had now, nothing else.

        Args:
            mm_hash: the id, any text.
            tensor: one dense tensor.
            borrow: True: nothing is copied, and the caller leaves the tensor unchanged.

        Raises:
            ClosedError: the cache was closed.
        """
        ...
