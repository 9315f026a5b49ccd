"""Whether an entry is there, asked on the scheduler's thread."""

from __future__ import annotations

import functools

from eccache.app.bounded_calls import BoundedCalls
from eccache.app.tiers.circuit_breaker import TierState
from eccache.app.tiers.tiered_store import TieredStore
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.ports.storage import EntryStore


class BoundedProbe:
    """Asks a store by name, for at the most a short while. Any thread may call it.

    On a local file system an answer takes microseconds, and an absent entry then costs its request no
    waiting at all. A store that does not answer in time is one of which nothing is known. Of several
    tiers the local one alone is asked: what it lacks, a remote tier may have, and only a look-up can tell.

    Args:
        store: is asked.
        calls: makes the call; few of its threads may hang, since each that does held the caller up.
        timeout_seconds: how long to wait for an answer.
        at_once: the local store waits for nobody, so that it is asked on the caller's own thread: handing
            the question over takes several times as long as the answer.
    """

    def __init__(
        self,
        store: EntryStore,
        calls: BoundedCalls,
        timeout_seconds: float,
        *,
        at_once: bool = False,
    ) -> None:
        local, remotes = (
            (store.local, store.remotes) if isinstance(store, TieredStore) else (store, ())
        )
        self._contains = local.contains
        self._remotes = remotes
        self._calls = calls
        self._timeout_seconds = timeout_seconds
        self._at_once = at_once

    def __call__(self, ref: EntryRef) -> bool | None:
        """Return whether something is stored under *ref*'s name; None if that can't be told now."""
        found = self._contains(ref) if self._at_once else self._bounded(ref)
        if found is False and any(remote.state is not TierState.OPEN for remote in self._remotes):
            return None
        return found

    def _bounded(self, ref: EntryRef) -> bool | None:
        try:
            return self._calls.call(functools.partial(self._contains, ref), self._timeout_seconds)
        except StoreFault:
            return None
