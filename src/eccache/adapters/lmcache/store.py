"""LMCache's storage as an entry store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eccache.adapters.lmcache.buffers import fill_buffer, give_back, take_buffer
from eccache.adapters.lmcache.closing import close_storage
from eccache.adapters.lmcache.key_locks import KeyLocks
from eccache.adapters.lmcache.keys import cache_key
from eccache.adapters.lmcache.known_entries import KnownEntries
from eccache.adapters.lmcache.lease import CopiedLease
from eccache.adapters.lmcache.local_backend import LocalBackendCalls
from eccache.adapters.lmcache.loop_calls import LoopCalls
from eccache.adapters.lmcache.operations import Operations
from eccache.adapters.lmcache.remote_backend import RemoteBackendCalls
from eccache.domain.errors import StoreFault
from eccache.domain.frame import Frame, is_kept
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryInfo, StoreStats

if TYPE_CHECKING:
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.storage_backend.storage_manager import StorageManager

    from eccache.domain.entry_ref import EntryRef
    from eccache.ports.clock import Clock

MAX_FRAME_NBYTES: Final = (1 << 31) - 1
"""LMCache writes a value's length in 31 bits."""
_NO_BUFFERS: Final = frozenset({"PDBackend", "P2PBackend"})


class LMCacheStore:
    """Implements `ports.storage.EntryStore` on a `StorageManager`.

    Reads look in every backend, the nearest first, and tell a miss from a fault; what is read is copied
    out of LMCache's pool. A put returns when every backend has finished writing.

    What LMCache evicts by itself is not counted, and a remote backend can't be listed: `entries` and
    `stats` tell what this process stored or read.

    Args:
        storage: a storage manager of role `worker`.
        clock: for deadlines.
        timeout_seconds: for one call of a backend.
        close_timeout_seconds: how long `close` waits for calls that are under way, and for LMCache.
        owns_storage: `close` closes *storage*.
    """

    def __init__(
        self,
        storage: StorageManager,
        *,
        clock: Clock,
        timeout_seconds: float,
        close_timeout_seconds: float,
        owns_storage: bool,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._close_timeout_seconds = close_timeout_seconds
        self._owns_storage = owns_storage
        self._calls = LoopCalls(storage.loop)
        self._backends = self._wrapped_backends()
        self._max_nbytes = min(MAX_FRAME_NBYTES, int(storage.config.max_local_cpu_size * (1 << 30)))
        self._locks = KeyLocks()
        self._known = KnownEntries()
        self._operations = Operations()
        self._counts = dict.fromkeys(RemoveReason, 0)
        self._rejected = 0

    @property
    def backend_names(self) -> tuple[str, ...]:
        """LMCache's names of the backends that entries are in, the nearest first."""
        return tuple(backend.name for backend in self._backends)

    def contains(self, ref: EntryRef) -> bool:
        """Return whether any backend has something under *ref*'s name; a fault is False."""
        key = cache_key(ref)
        if key is None or self._operations.closed:
            return False
        with contextlib.suppress(StoreFault):
            return self._holds(key)
        return False

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> CopiedLease | None:
        """Lease a copy of the frame under *ref*'s name, or None on a miss.

        Raises:
            StoreFault: no backend has it, and one could not tell or deliver.
        """
        key = cache_key(ref)
        if key is None:
            return None
        with self._operations.under_way():
            frame = self._read(key, deadline)
        if frame is None:
            self._known.forget(ref)
            return None
        self._known.note(ref, frame.nbytes)
        return CopiedLease(frame)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Store *frame* in every backend, and wait until it is there.

        Rejected are frames that LMCache's pool or its length fields can't hold, and keys whose dtype it
        has no name for.

        Raises:
            StoreFault: LMCache has no room now, or a backend did not store it.
        """
        key = cache_key(ref)
        if key is None or frame.nbytes > self._max_nbytes:
            self._rejected += 1
            return PutOutcome.REJECTED
        with self._operations.under_way(), self._locks.of(key):
            if self._keeps(key, ref, frame):
                return PutOutcome.ALREADY_PRESENT
            self._write(key, frame)
        self._known.note(ref, frame.nbytes)
        return PutOutcome.STORED

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Remove what is under *ref*'s name from every backend; True if there was something.

        Raises:
            StoreFault: a backend could not remove it.
        """
        key = cache_key(ref)
        if key is None:
            return False
        with self._operations.under_way(), self._locks.of(key):
            removed = [backend.remove(key, self._timeout_seconds) for backend in self._backends]
        self._known.forget(ref)
        self._counts[reason] += any(removed)
        return any(removed)

    def entries(self) -> Iterator[EntryInfo]:
        """Yield the entries that this process stored or read and that are still there."""
        for ref, info in self._known.all():
            if self.contains(ref):
                yield info

    def stats(self) -> StoreStats:
        """Return what this process stored or read, evicted by LMCache or not."""
        entries, nbytes = self._known.totals()
        return StoreStats(
            entries=entries,
            nbytes=nbytes,
            evictions=self._counts[RemoveReason.EVICTED],
            rejected=self._rejected,
            quarantined=self._counts[RemoveReason.QUARANTINED],
        )

    def close(self) -> None:
        """Wait for what is under way, then close LMCache, unless it is the caller's. Idempotent."""
        if self._operations.close(self._close_timeout_seconds) and self._owns_storage:
            close_storage(
                self._storage,
                timeout_seconds=self._close_timeout_seconds,
                is_idle=lambda: not self._operations.count and not self._calls.unanswered,
            )

    def _wrapped_backends(self) -> tuple[LocalBackendCalls | RemoteBackendCalls, ...]:
        from lmcache.v1.storage_backend.remote_backend import RemoteBackend

        # In LMCache's own order: memory, then disk, then remote.
        return tuple(
            RemoteBackendCalls(name, backend, self._calls)
            if isinstance(backend, RemoteBackend)
            else LocalBackendCalls(name, self._storage, self._clock)
            for name, backend in self._storage.storage_backends.items()
            if name not in _NO_BUFFERS and getattr(backend, "use_hot", True)
        )

    def _remaining(self, deadline: float | None) -> float:
        if deadline is None:
            return self._timeout_seconds
        return max(0.0, min(self._timeout_seconds, deadline - self._clock.monotonic()))

    def _holds(self, key: CacheEngineKey) -> bool:
        fault: StoreFault | None = None
        for backend in self._backends:
            try:
                if backend.contains(key, self._timeout_seconds):
                    return True
            except StoreFault as error:
                fault = error
        if fault is not None:
            raise fault
        return False

    def _read(self, key: CacheEngineKey, deadline: float | None) -> memoryview | None:
        fault: StoreFault | None = None
        for backend in self._backends:
            try:
                frame = backend.read(key, self._remaining(deadline))
            except StoreFault as error:
                fault = error
                continue
            if frame is not None:
                return frame
        if fault is not None:
            raise fault
        return None

    def _keeps(self, key: CacheEngineKey, ref: EntryRef, frame: Frame) -> bool:
        """Return whether what is stored stays. What can't be read gives way."""
        if not self._holds(key):
            return False
        try:
            stored = self._read(key, None)
        except StoreFault:
            return False
        return stored is not None and is_kept(stored, ref, frame)

    def _write(self, key: CacheEngineKey, frame: Frame) -> None:
        buffer = take_buffer(self._storage, frame.nbytes)
        if buffer is None:
            raise StoreFault(f"LMCache has no room for {frame.nbytes} bytes now")
        try:
            fill_buffer(buffer, frame)
            # The farthest first: what fails there is visible nowhere.
            for backend in reversed(self._backends):
                backend.write(key, buffer, self._timeout_seconds)
        finally:
            give_back(buffer)
