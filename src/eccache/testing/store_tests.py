"""What the tests of every store use: the factory that an adapter's author writes, and short forms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eccache.domain.outcomes import PutOutcome
from eccache.ports.storage import EntryStore, ReadLease
from eccache.testing.frames import frame_of, ref_of

AMPLE_NBYTES = 64 << 20
REF = ref_of("an input")


class StoreTests:
    """The factory and what tests use of it."""

    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        """Return a store of at most *capacity_nbytes* at *place*, an empty folder or a used one."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[EntryStore]:
        """An empty store with ample room."""
        store = self.make_store(tmp_path, AMPLE_NBYTES)
        yield store
        store.close()


def leased(store: EntryStore, seed: int = 0) -> ReadLease:
    """Put an entry and return a lease on it."""
    assert PutOutcome.STORED is store.put(REF, frame_of(REF, seed))
    lease = store.get(REF)
    assert lease is not None
    return lease


def read(store: EntryStore) -> bytes | None:
    """Return what is stored under the tests' name, or None on a miss."""
    lease = store.get(REF)
    if lease is None:
        return None
    try:
        return bytes(lease.view())
    finally:
        lease.close()


def run_at_once(tasks: list[Callable[[], None]]) -> None:
    """Run *tasks* in one thread each and wait for them."""
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
