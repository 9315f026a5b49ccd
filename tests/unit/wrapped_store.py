"""A store around another one, for tests that make one of its methods go wrong."""

from __future__ import annotations

from collections.abc import Iterator

from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryInfo, EntryStore, ReadLease, StoreStats


class WrappedStore:
    """Passes everything on to another store; a test overrides what it wants to go wrong."""

    def __init__(self, store: EntryStore) -> None:
        self.store = store

    def contains(self, ref: EntryRef) -> bool:
        """Pass on."""
        return self.store.contains(ref)

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Pass on."""
        return self.store.get(ref, deadline=deadline)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Pass on."""
        return self.store.put(ref, frame)

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Pass on."""
        return self.store.remove(ref, reason)

    def entries(self) -> Iterator[EntryInfo]:
        """Pass on."""
        return self.store.entries()

    def stats(self) -> StoreStats:
        """Pass on."""
        return self.store.stats()

    def close(self) -> None:
        """Pass on."""
        self.store.close()
