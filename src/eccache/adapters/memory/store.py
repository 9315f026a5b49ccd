"""The in-memory reference store: exact where others estimate, and simple enough to be checked by eye."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

import attrs

from eccache.adapters.memory.lease import MemoryLease
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.file_name import SUFFIX, file_name
from eccache.domain.frame import Frame, is_kept
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.clock import Clock
from eccache.ports.storage import EntryInfo, StoreStats

_Name = tuple[str, str]


@attrs.define
class _Entry:
    frame: bytearray
    used_seconds: float


def _name(ref: EntryRef) -> _Name:
    return ref.namespace, file_name(ref.key).removesuffix(SUFFIX)


class MemoryStore:
    """Implements `ports.storage.EntryStore` in this process's memory, evicting the least recently used.

    Args:
        capacity_nbytes: what all frames together may occupy.
        clock: for the time of last use.
    """

    def __init__(self, *, capacity_nbytes: int, clock: Clock) -> None:
        self._capacity_nbytes = capacity_nbytes
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Name, _Entry] = OrderedDict()
        self._nbytes = 0
        self._evictions = 0
        self._rejected = 0
        self._quarantined = 0
        self._closed = False

    def contains(self, ref: EntryRef) -> bool:
        """Return whether something is stored under *ref*'s name."""
        return _name(ref) in self._entries

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> MemoryLease | None:  # noqa: ARG002
        """Lease the frame stored under *ref*'s name, or None on a miss."""
        with self._lock:
            self._require_open()
            entry = self._entries.get(_name(ref))
            if entry is None:
                return None
            self._entries.move_to_end(_name(ref))
            entry.used_seconds = self._clock.unix()
            return MemoryLease(entry.frame)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Store *frame* under *ref*'s name."""
        if frame.nbytes > self._capacity_nbytes:
            self._rejected += 1
            return PutOutcome.REJECTED
        stored = self._entries.get(_name(ref))
        if stored is not None and is_kept(memoryview(stored.frame), ref, frame):
            return PutOutcome.ALREADY_PRESENT
        copied = bytearray(frame.nbytes)
        for offset, piece in frame.pieces():
            copied[offset : offset + piece.nbytes] = piece
        with self._lock:
            self._require_open()
            self._take(_name(ref))
            while self._nbytes + len(copied) > self._capacity_nbytes:
                self._take(next(iter(self._entries)))
                self._evictions += 1
            self._entries[_name(ref)] = _Entry(copied, self._clock.unix())
            self._nbytes += len(copied)
        return PutOutcome.STORED

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Take what is stored under *ref*'s name out of sight; True if there was something."""
        with self._lock:
            if not self._take(_name(ref)):
                return False
            self._evictions += reason is RemoveReason.EVICTED
            self._quarantined += reason is RemoveReason.QUARANTINED
            return True

    def entries(self) -> Iterator[EntryInfo]:
        """Yield every entry of every namespace."""
        with self._lock:
            entries = list(self._entries.items())
        for (namespace, name), entry in entries:
            yield EntryInfo(namespace, name, len(entry.frame), entry.used_seconds)

    def stats(self) -> StoreStats:
        """Return what the store holds."""
        return StoreStats(
            entries=len(self._entries),
            nbytes=self._nbytes,
            capacity_nbytes=self._capacity_nbytes,
            evictions=self._evictions,
            rejected=self._rejected,
            quarantined=self._quarantined,
        )

    def close(self) -> None:
        """Give all memory back that no lease refers to. Idempotent."""
        with self._lock:
            self._closed = True
            self._entries.clear()
            self._nbytes = 0

    def _take(self, name: _Name) -> bool:
        entry = self._entries.pop(name, None)
        if entry is None:
            return False
        self._nbytes -= len(entry.frame)
        return True

    def _require_open(self) -> None:
        if self._closed:
            raise StoreFault("the store is closed", remedy="open another one")
