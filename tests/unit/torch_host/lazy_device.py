"""A device that does nothing before it is waited for: what is out of order there comes out wrong."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import torch

from eccache.adapters.torch.transfer import Device, Mark


class Work:
    """A queue of work that is done as late as it can be."""

    def __init__(self) -> None:
        self._queued: list[Callable[[], object]] = []
        self._done = 0

    def queue(self, work: Callable[[], object]) -> Mark:
        """Queue *work*, and return the place behind it."""
        self._queued.append(work)
        return Place(self, len(self._queued))

    def here(self) -> Mark:
        """Return the place behind all that was queued."""
        return Place(self, len(self._queued))

    @property
    def pending(self) -> int:
        """How much was not done yet."""
        return len(self._queued) - self._done

    def do_until(self, place: int) -> None:
        """Do what was queued before *place*."""
        while self._done < place:
            self._done += 1
            self._queued[self._done - 1]()


@attrs.frozen(eq=False)
class Place:
    """A mark."""

    work: Work
    number: int

    def synchronize(self) -> None:
        """Do everything that comes before."""
        self.work.do_until(self.number)


class LazyQueue:
    """Implements `CopyQueue`.

    Args:
        caller: What the caller lets the device do.
    """

    def __init__(self, caller: Work) -> None:
        self.copies = Work()
        self._caller = caller

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Mark:
        """Copy, some time."""
        return self.copies.queue(lambda: target.copy_(source))

    def here(self) -> Mark:
        """Return the place where the caller is."""
        return self._caller.here()

    def follow(self, mark: Mark) -> None:
        """Let copies come after *mark*."""
        self.copies.queue(mark.synchronize)

    def lead(self, mark: Mark) -> None:
        """Let the caller's work come after *mark*."""
        self._caller.queue(mark.synchronize)


@attrs.frozen(eq=False)
class LazyDevice:
    """A device, and what it was asked to allocate.

    Attributes:
        caller: What the caller lets the device do.
        pinned_nbytes: Of every ring that was made.
        copies: What the adapter uses.
    """

    caller: Work = attrs.field(factory=Work)
    pinned_nbytes: list[int] = attrs.field(factory=list)
    copies: Device = attrs.field(init=False)

    @copies.default
    def _copies(self) -> Device:
        def pinned(nbytes: int) -> torch.Tensor:
            self.pinned_nbytes.append(nbytes)
            return torch.full((nbytes,), 0xEE, dtype=torch.uint8)

        return Device(lambda: LazyQueue(self.caller), pinned, self.caller.here)
