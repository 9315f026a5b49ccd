"""The part of the promise ledger that comes after a promise was taken: loads, until every rank is done."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import attrs

from eccache.app.promises.promised_copy import PromisedCopy
from eccache.ports.lookup import PromisedLoad


@attrs.define(eq=False)
class _Load:
    """A load that some rank has not acknowledged.

    Attributes:
        mm_hash: the input's id.
        copy: what is loaded.
        unacknowledged: ranks that have yet to say that they are done.
        gives_up_at: monotonic seconds; infinite until the workers are told.
    """

    mm_hash: str
    copy: PromisedCopy
    unacknowledged: int
    gives_up_at: float = math.inf


class LoadsInFlight:
    """Keeps each copy until every rank has acknowledged every load of it. Used by one thread.

    Args:
        ranks: acknowledgements that each load gets.
        ack_timeout_seconds: after this long a load counts as acknowledged by all.
        release: is given the copy of a load that is over.
    """

    def __init__(
        self, ranks: int, ack_timeout_seconds: float, release: Callable[[PromisedCopy], None]
    ) -> None:
        self._ranks = ranks
        self._ack_timeout_seconds = ack_timeout_seconds
        self._release = release
        self._ids = itertools.count(1)
        self._loads: dict[int, _Load] = {}
        self._latest: dict[str, int] = {}
        self._planned: list[PromisedLoad] = []

    def __len__(self) -> int:
        """Return how many loads some rank has not acknowledged."""
        return len(self._loads)

    def begin(self, mm_hash: str, copy: PromisedCopy) -> None:
        """Plan a load of *copy* for this step; takes over one use of it."""
        promise_id = next(self._ids)
        self._loads[promise_id] = _Load(mm_hash, copy, self._ranks)
        self._latest[mm_hash] = promise_id
        self._planned.append(PromisedLoad(mm_hash, promise_id, copy.pid, copy.fd, copy.nbytes))

    def take_planned(self, now: float) -> tuple[PromisedLoad, ...]:
        """Return the loads begun since the last call; from *now* on the workers are expected to answer."""
        planned, self._planned = self._planned, []
        for load in planned:
            self._loads[load.promise_id].gives_up_at = now + self._ack_timeout_seconds
        return tuple(planned)

    def copy_of(self, mm_hash: str) -> PromisedCopy | None:
        """Return the copy of an input that is still being loaded, or None."""
        promise_id = self._latest.get(mm_hash)
        return None if promise_id is None else self._loads[promise_id].copy

    def acknowledge(self, promise_id: int, ranks: int) -> None:
        """Note that *ranks* more ranks are done with a load; one that is over already is ignored."""
        load = self._loads.get(promise_id)
        if load is None:
            return
        load.unacknowledged -= ranks
        if load.unacknowledged <= 0:
            self._end(promise_id)

    def expire(self, now: float) -> int:
        """End the loads that nobody will acknowledge any more, and return how many those were."""
        expired = 0
        while self._loads:
            promise_id, load = next(iter(self._loads.items()))
            if now < load.gives_up_at:
                break
            self._end(promise_id)
            expired += 1
        return expired

    def close(self) -> None:
        """End all loads."""
        self._planned.clear()
        while self._loads:
            self._end(next(iter(self._loads)))

    def _end(self, promise_id: int) -> None:
        load = self._loads.pop(promise_id)
        if self._latest.get(load.mm_hash) == promise_id:
            del self._latest[load.mm_hash]
        self._release(load.copy)
