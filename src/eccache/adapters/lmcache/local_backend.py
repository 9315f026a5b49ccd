"""One of LMCache's backends in this process or on this host: its memory, its disk, NIXL, plug-ins."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from eccache.adapters.lmcache.buffers import copy_out, give_back, give_back_lost
from eccache.adapters.lmcache.key_locks import KeyLocks
from eccache.domain.errors import StoreFault, StoreTimeout

if TYPE_CHECKING:
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.storage_backend.storage_manager import StorageManager

    from eccache.ports.clock import Clock

_FIRST_WAIT_SECONDS: Final = 0.0005
_LONGEST_WAIT_SECONDS: Final = 0.02
_DISK_ACCOUNT: Final = ("disk_lock", "dict", "current_cache_size", "cache_policy")


class LocalBackendCalls:
    """Reads and writes frames of one backend through the storage manager.

    Args:
        name: LMCache's name of the backend.
        storage: the storage manager.
        clock: for the time limit of writes, which LMCache makes in the background.
    """

    def __init__(self, name: str, storage: StorageManager, clock: Clock) -> None:
        self.name = name
        self._storage = storage
        self._backend: Any = storage.storage_backends[name]
        self._clock = clock
        self._is_disk = all(hasattr(self._backend, name) for name in _DISK_ACCOUNT)
        # LMCache's disk writes to the final name: who reads meanwhile reads a torn file, or makes LMCache
        # forget the new one.
        self._locks = KeyLocks()

    def contains(self, key: CacheEngineKey, timeout_seconds: float) -> bool:  # noqa: ARG002 - an index in memory
        """Return whether there is something under *key*."""
        return bool(self._backend.contains(key))

    def read(self, key: CacheEngineKey, timeout_seconds: float) -> memoryview | None:  # noqa: ARG002 - as `contains`
        """Return a private copy of what is under *key*, or None; also where its file is gone.

        Raises:
            StoreFault: it could not be read.
        """
        with self._locks.of(key):
            return self._read(key)

    def _read(self, key: CacheEngineKey) -> memoryview | None:
        if not self._backend.contains(key):
            return None
        size = self._disk_nbytes(key)
        try:
            (found,) = self._storage.batched_get([key], location=self.name)
        except (KeyError, FileNotFoundError) as error:
            give_back_lost(error)
            self._credit_disk(key, size)
            return None
        except Exception as error:  # noqa: BLE001 - a backend may raise anything
            give_back_lost(error)
            cause = f"LMCache's {self.name}: {type(error).__name__}: {error}"
            raise StoreFault(cause) from None
        if found is None:
            return None
        try:
            return copy_out(found)
        finally:
            give_back(found)

    def write(self, key: CacheEngineKey, buffer: MemoryObj, timeout_seconds: float) -> None:
        """Store *buffer* under *key*, in place of what is there. The caller keeps its reference.

        Raises:
            StoreFault: it is not stored.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        with self._locks.of(key):
            self._wait_for_writes(key, deadline)
            self._remove(key)  # LMCache keeps what is there, and says nothing
            buffer.ref_count_up()  # consumed by the put
            self._storage.batched_put([key], [buffer], location=self.name)
            self._wait_for_writes(key, deadline)
            kept = self._backend.contains(key)
        if not kept:
            raise StoreFault(f"LMCache's {self.name} has not kept the entry")

    def remove(self, key: CacheEngineKey, timeout_seconds: float) -> bool:  # noqa: ARG002 - as `contains`
        """Remove what is under *key*; True if there was something.

        Raises:
            StoreFault: it could not be removed.
        """
        with self._locks.of(key):
            return self._remove(key)

    def _remove(self, key: CacheEngineKey) -> bool:
        try:
            return self._removed(key)
        except FileNotFoundError:
            return True  # a file that somebody else removed; LMCache has forgotten it by now
        except Exception as error:
            raise StoreFault(f"LMCache's {self.name}: {type(error).__name__}: {error}") from error

    def _removed(self, key: CacheEngineKey) -> bool:
        backend = self._backend
        if not self._is_disk:
            return bool(backend.remove(key))
        # LMCache's disk forgets to give the bytes back when somebody else than its eviction removes: after
        # as many removals as fit, it takes nothing any more. So it is removed as its eviction does it.
        with backend.disk_lock:
            stored = backend.dict.get(key)
            if stored is None:
                return False
            backend.current_cache_size -= stored.size
            try:
                return bool(backend.remove(key, force=False))
            finally:
                backend.cache_policy.update_on_force_evict(key)

    def _disk_nbytes(self, key: CacheEngineKey) -> int:
        """Return what *key* occupies in the account of LMCache's disk; 0 for other backends."""
        if not self._is_disk:
            return 0
        with self._backend.disk_lock:
            stored = self._backend.dict.get(key)
            return stored.size if stored is not None else 0

    def _credit_disk(self, key: CacheEngineKey, nbytes: int) -> None:
        """Give back the bytes of an entry that LMCache's disk has dropped since its file is gone."""
        if self._is_disk:
            with self._backend.disk_lock:
                if key not in self._backend.dict:
                    self._backend.current_cache_size -= nbytes

    def _wait_for_writes(self, key: CacheEngineKey, deadline: float) -> None:
        """Wait until LMCache has nothing of *key* under way in this backend.

        Raises:
            StoreTimeout: it still has. A write that failed stays so for ever.
        """
        wait_seconds = _FIRST_WAIT_SECONDS
        pause = threading.Event()
        while self._backend.exists_in_put_tasks(key):
            if self._clock.monotonic() >= deadline:
                raise StoreTimeout(f"LMCache's {self.name} has not finished writing in time")
            pause.wait(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
