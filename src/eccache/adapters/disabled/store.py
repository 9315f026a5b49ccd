"""The store behind `enabled: false`."""

from __future__ import annotations

from collections.abc import Iterator

from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryInfo, ReadLease, StoreStats


class DisabledStore:
    """Implements `ports.storage.EntryStore`: every get misses, every put is rejected."""

    def contains(self, ref: EntryRef) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:  # noqa: ARG002
        """Return None."""
        return None

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:  # noqa: ARG002
        """Reject."""
        return PutOutcome.REJECTED

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:  # noqa: ARG002
        """Return False: there is never anything."""
        return False

    def entries(self) -> Iterator[EntryInfo]:
        """Yield nothing."""
        return iter(())

    def stats(self) -> StoreStats:
        """Return zeros."""
        return StoreStats(entries=0, nbytes=0)

    def close(self) -> None:
        """Do nothing."""
