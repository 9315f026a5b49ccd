"""Admission: whether a frame may be stored, and the evictions that make it so."""

from __future__ import annotations

import threading
from typing import Final

from eccache.adapters.disk.accounting import Accounting, Usage
from eccache.adapters.disk.eviction import Evictor
from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.policy import DiskPolicy
from eccache.adapters.disk.temporaries import Temporaries
from eccache.ports.file_operations import FileOperations

_PAGE_NBYTES: Final = 4096
_YIELD_NBYTES: Final = 64 << 20
"""What a put evicts at the most, beyond four times its own size, for others who fill the file system."""


class Admission:
    """Keeps the cap and the floor of free space. Any thread may call it.

    The cap is checked before a frame is written, with what others are writing, and again when it is
    published. So it is exceeded by no more than what several writers admit at the same moment, and never
    once they are done.

    Args:
        layout: whose file system has a floor.
        files: file operations.
        policy: cap and floor.
        accounting: says how much is stored.
        evictor: makes room.
        temporaries: whose dead ones go first.
        notices: says when there is no room that the cache could make.
    """

    def __init__(
        self,
        layout: Layout,
        files: FileOperations,
        policy: DiskPolicy,
        accounting: Accounting,
        evictor: Evictor,
        temporaries: Temporaries,
        notices: Notices,
    ) -> None:
        self._layout = layout
        self._files = files
        self._policy = policy
        self._accounting = accounting
        self._evictor = evictor
        self._temporaries = temporaries
        self._notices = notices
        self._lock = threading.Lock()

    def admit(self, frame_nbytes: int) -> bool:
        """Make room for a frame; False where the policy leaves none.

        Raises:
            OSError: it can't be told how much is stored.
        """
        nbytes = -(-frame_nbytes // _PAGE_NBYTES) * _PAGE_NBYTES
        if nbytes > self._policy.capacity_nbytes:
            return False
        with self._lock:
            return self._within_cap(nbytes) and self._above_floor(nbytes)

    def settle(self, shard: int) -> None:
        """Take note of what was published in, or removed from, *shard*, and keep the cap.

        Raises:
            OSError: it can't be told how much is stored.
        """
        with self._lock:
            usage = self._accounting.note(shard, self._accounting.usage())
            self._accounting.rotate(usage)
            if self._excess(usage, 0) > 0:
                self._within_cap(0)

    def evict(self, nbytes: int) -> bool:
        """Evict *nbytes* because the file system has no room; True if that freed anything.

        Raises:
            OSError: it can't be told what is stored.
        """
        with self._lock:
            return self._collect() + self._free(nbytes) > 0

    def _within_cap(self, nbytes: int) -> bool:
        excess = self._excess(self._accounting.usage(), nbytes)
        if excess > 0 and self._collect():
            excess = self._excess(self._accounting.usage(), nbytes)
        if nbytes and excess > 0 and not self._may_fit(nbytes):
            return False
        while excess > 0 and self._free(excess):
            excess = self._excess(self._accounting.usage(), nbytes)
        return excess <= 0

    def _may_fit(self, nbytes: int) -> bool:
        """Return False where others' unfinished writes are in the way: to evict would help nobody."""
        return nbytes + self._accounting.uncharted_nbytes() <= self._policy.capacity_nbytes

    def _excess(self, usage: Usage, nbytes: int) -> int:
        stored_nbytes = sum(usage.nbytes) + self._accounting.uncharted_nbytes()
        return stored_nbytes + nbytes - self._policy.capacity_nbytes

    def _above_floor(self, nbytes: int) -> bool:
        shortage = self._shortage(nbytes)
        if shortage <= 0:
            return True
        self._free(min(shortage, 4 * nbytes + _YIELD_NBYTES))
        if self._shortage(nbytes) <= 0:
            return True
        self._notices.warn(
            "store.space.low",
            shortage_nbytes=shortage,
            remedy="free space on the file system, or lower min_free_space_ratio",
        )
        return False

    def _collect(self) -> int:
        return self._temporaries.collect() if self._policy.evicts else 0

    def _free(self, nbytes: int) -> int:
        return self._evictor.free(nbytes) if self._policy.evicts else 0

    def _shortage(self, nbytes: int) -> int:
        try:
            space = self._files.space(self._layout.version)
        except FileNotFoundError:  # The root is gone; the put will make it anew.
            return 0
        return int(space.total_nbytes * self._policy.free_space_ratio) + nbytes - space.free_nbytes
