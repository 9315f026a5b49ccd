"""What every lease does: the docstring of `ports.storage.ReadLease`, sentence by sentence, as tests."""

from __future__ import annotations

import pytest

from eccache.domain.outcomes import RemoveReason
from eccache.ports.storage import EntryStore
from eccache.testing.frames import frame_bytes, frame_of, is_intact
from eccache.testing.store_tests import REF, StoreTests, leased, read


class LeaseConformance(StoreTests):
    """Part of `EntryStoreConformance`."""

    def test_lease_survives_replacement(self, store: EntryStore) -> None:
        """A lease is unaffected by a later put under its name."""
        lease = leased(store)
        store.put(REF, frame_of(REF, 1, rows=5))
        assert frame_bytes(frame_of(REF)) == bytes(lease.view())
        lease.close()

    @pytest.mark.parametrize("reason", RemoveReason)
    def test_lease_survives_removal(self, store: EntryStore, reason: RemoveReason) -> None:
        """A lease is unaffected by a later removal of its name, whatever the reason."""
        lease = leased(store)
        assert store.remove(REF, reason)
        target = bytearray(lease.nbytes)
        assert lease.nbytes == lease.read_into(memoryview(target))
        assert frame_bytes(frame_of(REF)) == bytes(target) == bytes(lease.view())
        lease.close()

    def test_view_outlives_lease_and_store(self, store: EntryStore) -> None:
        """A buffer stays valid for as long as something refers to it."""
        lease = leased(store)
        view = lease.view()
        lease.close()
        store.remove(REF, RemoveReason.REMOVED)
        store.close()
        del lease
        assert is_intact(view, REF)

    def test_view_is_private(self, store: EntryStore) -> None:
        """A buffer is writable 1-D bytes, and what is written to it nobody else sees."""
        lease = leased(store)
        view = lease.view()
        lease.close()
        assert ("B", 1, False) == (view.format, view.ndim, view.readonly)
        view[:] = bytes(view.nbytes)
        assert frame_bytes(frame_of(REF)) == read(store)

    def test_read_into_copies_from_an_offset(self, store: EntryStore) -> None:
        """`read_into` fills the target, and copies fewer bytes only at the frame's end."""
        lease = leased(store)
        whole = frame_bytes(frame_of(REF))
        target = bytearray(100)
        assert 100 == lease.read_into(memoryview(target), 4090)
        assert whole[4090:4190] == target
        assert 30 == lease.read_into(memoryview(target), len(whole) - 30)
        assert whole[-30:] == target[:30]
        assert 0 == lease.read_into(memoryview(target), len(whole))
        assert 0 == lease.read_into(memoryview(target)[:0], 0)
        lease.close()

    def test_lease_closes_twice(self, store: EntryStore) -> None:
        """Closing a lease is idempotent, before and after use."""
        unused = leased(store)
        unused.close()
        unused.close()
