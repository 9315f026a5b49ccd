"""What this process knows to be in LMCache, which can't list what it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import attrs

from eccache.domain.file_name import SUFFIX, file_name
from eccache.ports.storage import EntryInfo

if TYPE_CHECKING:
    from eccache.domain.entry_ref import EntryRef

MAX_KNOWN: Final = 16_384
"""The oldest is forgotten beyond; some 8 MB."""


class KnownEntries:
    """Notes of entries that this process stored or read. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[EntryRef, int] = OrderedDict()
        self._nbytes = 0

    def note(self, ref: EntryRef, nbytes: int) -> None:
        """Note that *ref*'s name holds *nbytes*."""
        with self._lock:
            self._forget(ref)
            self._entries[_named(ref)] = nbytes
            self._nbytes += nbytes
            if len(self._entries) > MAX_KNOWN:
                self._nbytes -= self._entries.popitem(last=False)[1]

    def forget(self, ref: EntryRef) -> None:
        """Note that *ref*'s name holds nothing."""
        with self._lock:
            self._forget(ref)

    def all(self) -> list[tuple[EntryRef, EntryInfo]]:
        """Return every note."""
        with self._lock:
            entries = list(self._entries.items())
        return [
            (ref, EntryInfo(ref.namespace, file_name(ref.key).removesuffix(SUFFIX), nbytes))
            for ref, nbytes in entries
        ]

    def totals(self) -> tuple[int, int]:
        """Return the number of notes and their bytes."""
        with self._lock:
            return len(self._entries), self._nbytes

    def _forget(self, ref: EntryRef) -> None:
        self._nbytes -= self._entries.pop(_named(ref), 0)


def _named(ref: EntryRef) -> EntryRef:
    """Return *ref* with nothing but its name: two inputs of one name are one entry."""
    return attrs.evolve(ref, mm_digest=bytes(32), excerpt="")
