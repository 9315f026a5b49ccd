"""What this process knows to be in LMCache, which can't list what it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from eccache.domain.file_name import SUFFIX, file_name
from eccache.ports.storage import EntryInfo

if TYPE_CHECKING:
    from eccache.domain.entry_ref import EntryRef
    from eccache.domain.key import EntryKey

MAX_KNOWN: Final = 16_384
"""The oldest is forgotten beyond; some 8 MB."""


class KnownEntries:
    """Notes of entries that this process stored or read. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, EntryKey], tuple[EntryRef, int]] = OrderedDict()
        self._nbytes = 0

    def note(self, ref: EntryRef, nbytes: int) -> None:
        """Note that *ref*'s name holds *nbytes*."""
        with self._lock:
            self._forget(ref)
            self._entries[ref.namespace, ref.key] = (ref, nbytes)
            self._nbytes += nbytes
            if len(self._entries) > MAX_KNOWN:
                _, (_, oldest_nbytes) = self._entries.popitem(last=False)
                self._nbytes -= oldest_nbytes

    def forget(self, ref: EntryRef) -> None:
        """Note that *ref*'s name holds nothing."""
        with self._lock:
            self._forget(ref)

    def all(self) -> list[tuple[EntryRef, EntryInfo]]:
        """Return every note."""
        with self._lock:
            entries = list(self._entries.values())
        return [
            (ref, EntryInfo(ref.namespace, file_name(ref.key).removesuffix(SUFFIX), nbytes))
            for ref, nbytes in entries
        ]

    def totals(self) -> tuple[int, int]:
        """Return the number of notes and their bytes."""
        with self._lock:
            return len(self._entries), self._nbytes

    def _forget(self, ref: EntryRef) -> None:
        _, nbytes = self._entries.pop((ref.namespace, ref.key), (ref, 0))
        self._nbytes -= nbytes
