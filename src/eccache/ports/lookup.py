"""Driving port: how a serving framework's two sides reach the cache.

A serving framework decides in its *scheduler* which inputs need no encoder run, and acts on that in
its *workers*, in other processes. The scheduler's side promises (`PromiseLookup`), the worker's side
loads and saves (`WorkerCache`). What travels between them are the values below: plain data that any
serializer can carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import attrs

T = TypeVar("T")
"""The framework's tensor type."""


class Content(Protocol):
    """What an input is, beyond its id: a digest of what the encoder reads. Any thread may ask."""

    def digest(self) -> str | None:
        """Return it in hex, as soon as it is taken; None if it can't be. Always the same answer."""
        ...


@attrs.frozen
class Item:
    """One input of a request, as the scheduler knows it.

    Attributes:
        mm_hash: the framework's id of the input.
        num_embeds: rows the request needs.
        expected: the request says that another server is storing it, so a miss may still turn into a
            hit before the deadline.
        variant: tells inputs of one id apart that must not share; see `domain.key.mm_digest`.
        content: what its entry must have been made of; None: the id is all that is known.
        required: nothing but its entry can supply it, so its request waits for its turn to be looked up.
        width: values in a row, where the framework has measured it.
        dtype: torch's name of the element type that the encoder makes, where that is known.
    """

    mm_hash: str
    num_embeds: int
    expected: bool = False
    required: bool = False
    variant: str = ""
    content: Content | None = attrs.field(default=None, eq=False)
    width: int | None = None
    dtype: str | None = None


@attrs.frozen
class PermittedSave:
    """A permission to save one input's encoder output, and as what.

    Attributes:
        mm_hash: the framework's id of the input.
        variant: as in `Item`.
        content: digest of what the encoder reads, in hex; None: unknown.
    """

    mm_hash: str
    variant: str = ""
    content: str | None = None


@attrs.frozen
class PromisedLoad:
    """An instruction to a worker: where the private, verified copy of an item is.

    Attributes:
        mm_hash: the framework's id of the input.
        promise_id: names this copy in acknowledgements; never used twice by one scheduler.
        pid: process that holds the copy.
        fd: its descriptor in that process.
        nbytes: length of the copy, a whole frame.
    """

    mm_hash: str
    promise_id: int
    pid: int
    fd: int
    nbytes: int


@attrs.frozen
class StepPlan:
    """What the workers are to do in one step.

    Attributes:
        loads: copies to load.
        saves: inputs that may be saved once encoded. An allow-list: a worker sees no request.
    """

    loads: tuple[PromisedLoad, ...] = ()
    saves: tuple[PermittedSave, ...] = ()


@attrs.frozen
class WorkerReport:
    """What one worker, or several together, did since the last report.

    Attributes:
        acks: how many ranks are done with each promise, by promise id.
        counters: amounts to add, by `name` or `name:reason`.
        observations: single observations, by name.
        made: element types, by torch's name, that the encoder was seen to make for the first time.
    """

    acks: dict[int, int] = attrs.field(factory=dict)
    counters: dict[str, int] = attrs.field(factory=dict)
    observations: dict[str, list[float]] = attrs.field(factory=dict)
    made: frozenset[str] = frozenset()


class PromiseLookup(Protocol):
    """The scheduler's side. Called from one thread; nothing raises, nothing waits on a store."""

    def ensure(self, request_id: str, items: Sequence[Item]) -> bool:
        """Order look-ups for what *items* of a request need; True once nothing is under way for it.

        They begin at `take_step` at the latest. Called every step until it answers True, for at the most a
        deadline; after that, when something is needed anew: the request was preempted, or an input left
        the accelerator.

        Args:
            request_id: the request, until `finished`.
            items: the inputs it still needs that are not on the accelerator.
        """
        ...

    def is_promised(self, mm_hash: str) -> bool:
        """Return whether a private, verified copy of *mm_hash* is at hand. One dict access.

        True holds until the next call of `ensure`, `take_step`, `finished` or `close`. It names no
        request: the caller sees to it that live requests agree on the rows of an id.
        """
        ...

    def may_be_found(self, request_id: str, mm_hash: str) -> bool:
        """Return whether another round may find what the last one of this request did not.

        True where there was no time or no room for it; False where it is not there, or not to be used.
        """
        ...

    def allocated(self, request_id: str, item: Item, *, storable: bool) -> None:
        """Note that the framework made room for *item* in this step: a promise becomes a load.

        An item without a promise becomes a permission to save if it is *storable*.
        """
        ...

    def take_step(self) -> StepPlan:
        """Return what was allocated since the last call, and forget it; begin what was ordered."""
        ...

    def report(self, report: WorkerReport) -> None:
        """Take in what the workers did; a copy that every rank has acknowledged is closed."""
        ...

    def finished(self, request_id: str) -> None:
        """Forget a request, wherever it stands."""
        ...

    def close(self) -> None:
        """Close every copy and end every thread that can be ended. Idempotent."""
        ...


class WorkerCache(Protocol[T]):
    """The worker's side, one per rank. Called from one thread; nothing raises."""

    def load(self, loads: Iterable[PromisedLoad], device: str) -> dict[str, T]:
        """Return the tensors of *loads* by mm_hash, each acknowledged in the next report.

        One that can't be mapped is left out, counted and logged: it must not happen.
        """
        ...

    def save(self, permitted: PermittedSave, tensor: T) -> None:
        """Store *tensor* as what is *permitted*, in the background; it must not change from now on."""
        ...

    def take_report(self) -> WorkerReport | None:
        """Return what was done since the last call; None if that is nothing."""
        ...

    def close(self) -> None:
        """Wait for accepted saves up to a deadline, then give everything back. Idempotent."""
        ...
