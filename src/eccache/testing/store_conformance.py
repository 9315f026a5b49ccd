"""What every entry store does: the port's docstrings, sentence by sentence, as tests.

For a store of your own:

```python
class TestMyStore(EntryStoreConformance):
    def make_store(self, place: Path, capacity_nbytes: int) -> EntryStore:
        return MyStore(place, capacity_nbytes)
```

A capped store that several processes share at one place subclasses `SharedStoreConformance` instead, one
that only has a cap `CappedStoreConformance` too.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from eccache.domain.errors import StoreFault
from eccache.domain.file_name import SUFFIX, file_name
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.storage import EntryStore
from eccache.testing.frames import (
    BrokenFrame,
    BrokenFrameError,
    DamagedFrame,
    colliding_ref,
    frame_bytes,
    frame_of,
    is_intact,
    ref_of,
)
from eccache.testing.lease_conformance import LeaseConformance
from eccache.testing.store_tests import AMPLE_NBYTES, REF, StoreTests, leased, read, run_at_once


class EntryStoreConformance(LeaseConformance):
    """Subclass, define `make_store`, done."""

    def test_contains_what_was_put(self, store: EntryStore) -> None:
        """`contains` is False before and True after a put."""
        assert not store.contains(REF)
        store.put(REF, frame_of(REF))
        assert store.contains(REF)

    def test_contains_goes_by_name_alone(self, store: EntryStore) -> None:
        """Another input of the same name is contained: what is stored is for the reader to verify."""
        store.put(REF, frame_of(REF))
        assert store.contains(colliding_ref(REF))
        assert not store.contains(ref_of("an input", model="another/model"))
        assert not store.contains(ref_of("an input", namespace=Namespace.from_ingredients({})))

    def test_contains_changes_nothing(self, store: EntryStore) -> None:
        """`contains` leaves recency and statistics as they are."""
        store.put(REF, frame_of(REF))
        before = (list(store.entries()), store.stats())
        store.contains(REF)
        store.contains(ref_of("unknown"))
        assert before == (list(store.entries()), store.stats())

    def test_get_of_nothing_is_none(self, store: EntryStore) -> None:
        """None means a miss."""
        assert store.get(REF) is None

    def test_get_leases_what_was_put(self, store: EntryStore) -> None:
        """What is read is, bit for bit, the frame that was put."""
        frame = frame_of(REF, rows=300, width=4096)
        store.put(REF, frame)
        lease = store.get(REF, deadline=float("inf"))
        assert lease is not None
        assert frame.nbytes == lease.nbytes
        assert frame_bytes(frame) == bytes(lease.view())
        lease.close()

    def test_get_of_an_empty_tensor(self, store: EntryStore) -> None:
        """A frame without payload is an entry like any other."""
        frame = frame_of(REF, rows=0)
        store.put(REF, frame)
        assert frame_bytes(frame) == read(store)

    def test_get_goes_by_name_alone(self, store: EntryStore) -> None:
        """The frame of another input of the same name is leased: the reader verifies."""
        other = colliding_ref(REF)
        store.put(other, frame_of(other))
        assert frame_bytes(frame_of(other)) == read(store)

    def test_put_tells_present_from_stored(self, store: EntryStore) -> None:
        """A frame that is there and is the reference's own is kept."""
        assert PutOutcome.STORED is store.put(REF, frame_of(REF, 0))
        assert PutOutcome.ALREADY_PRESENT is store.put(REF, frame_of(REF, 1))
        assert frame_bytes(frame_of(REF, 0)) == read(store)

    def test_put_replaces_a_damaged_frame(self, store: EntryStore) -> None:
        """A frame that fails verification gives way."""
        store.put(REF, DamagedFrame(frame_of(REF)))
        assert PutOutcome.STORED is store.put(REF, frame_of(REF))
        assert frame_bytes(frame_of(REF)) == read(store)

    def test_put_replaces_another_inputs_frame(self, store: EntryStore) -> None:
        """Of two inputs with one name, the last one is stored."""
        other = colliding_ref(REF)
        store.put(other, frame_of(other))
        assert PutOutcome.STORED is store.put(REF, frame_of(REF))
        assert frame_bytes(frame_of(REF)) == read(store)
        assert 1 == len(list(store.entries()))

    @pytest.mark.parametrize("shape", [(5, 64), (2, 128)])
    def test_put_replaces_another_shape(self, store: EntryStore, shape: tuple[int, int]) -> None:
        """A frame of another shape gives way, also one of equal length."""
        store.put(REF, frame_of(REF, rows=4, width=64))
        frame = frame_of(REF, rows=shape[0], width=shape[1])
        assert PutOutcome.STORED is store.put(REF, frame)
        assert frame_bytes(frame) == read(store)

    def test_put_that_fails_leaves_nothing(self, store: EntryStore) -> None:
        """A put whose source breaks off is not visible, occupies nothing, and keeps what was there."""
        with pytest.raises(BrokenFrameError):
            store.put(REF, BrokenFrame(frame_of(REF)))
        assert (None, [], 0) == (read(store), list(store.entries()), store.stats().nbytes)
        store.put(REF, frame_of(REF, rows=2))
        with pytest.raises(BrokenFrameError):
            store.put(REF, BrokenFrame(frame_of(REF, rows=3)))
        assert frame_bytes(frame_of(REF, rows=2)) == read(store)

    def test_put_needs_the_bytes_no_more(self, store: EntryStore) -> None:
        """What becomes of a frame's buffer after the put is nobody's business."""
        spec = TensorSpec("uint8", (3, 100))
        payload = bytearray(range(100)) * 3
        frame = FreshFrame(REF, spec, memoryview(payload), {})
        expected = frame_bytes(frame)
        store.put(REF, frame)
        payload[:] = bytes(300)
        assert expected == read(store)

    def test_remove_says_whether_there_was_something(self, store: EntryStore) -> None:
        """What was removed is out of sight, and can be stored again."""
        assert not store.remove(REF, RemoveReason.REMOVED)
        store.put(REF, frame_of(REF))
        assert store.remove(REF, RemoveReason.REMOVED)
        assert (False, None, []) == (store.contains(REF), read(store), list(store.entries()))
        assert not store.remove(REF, RemoveReason.REMOVED)
        assert PutOutcome.STORED is store.put(REF, frame_of(REF))

    def test_entries_of_every_namespace(self, store: EntryStore) -> None:
        """`entries` yields each entry of each namespace once, with namespace, name and size."""
        refs = [ref_of(f"input {i}") for i in range(20)]
        refs += [ref_of(f"input {i}", namespace=Namespace.from_ingredients({})) for i in range(5)]
        for ref in refs:
            store.put(ref, frame_of(ref))
        found = list(store.entries())
        expected = sorted((ref.namespace, file_name(ref.key).removesuffix(SUFFIX)) for ref in refs)
        assert expected == sorted((info.namespace, info.name) for info in found)
        assert all(info.nbytes >= frame_of(REF).nbytes for info in found)
        assert (25, sum(info.nbytes for info in found)) == (
            store.stats().entries,
            store.stats().nbytes,
        )

    def test_entries_while_they_change(self, store: EntryStore) -> None:
        """What is put or removed while `entries` is gone through may be missed, and stops nothing."""
        refs = [ref_of(f"input {i}") for i in range(20)]
        for ref in refs[:10]:
            store.put(ref, frame_of(ref))
        names = set()
        for turn, info in enumerate(store.entries()):
            names.add(info.name)
            store.put(refs[10 + turn % 10], frame_of(refs[10 + turn % 10]))
            store.remove(refs[turn % 10], RemoveReason.REMOVED)
        assert names <= {file_name(ref.key).removesuffix(SUFFIX) for ref in refs}

    def test_stats_count_what_this_instance_did(self, store: EntryStore) -> None:
        """Evictions, rejections and quarantines are counted, removals are not."""
        for reason in RemoveReason:
            store.put(REF, frame_of(REF))
            store.remove(REF, reason)
        stats = store.stats()
        assert (1, 0, 1) == (stats.evictions, stats.rejected, stats.quarantined)

    def test_close_keeps_leases(self, store: EntryStore) -> None:
        """Closing a store is idempotent, leases stay valid, and later use is a fault or a miss."""
        lease = leased(store)
        store.close()
        store.close()
        assert frame_bytes(frame_of(REF)) == bytes(lease.view())
        lease.close()
        with pytest.raises(StoreFault):
            store.put(ref_of("too late"), frame_of(ref_of("too late")))

    def test_any_number_of_threads(self, store: EntryStore) -> None:
        """Threads that put, get and remove the same few names never read a wrong byte, nor raise."""
        refs = [ref_of(f"input {i}") for i in range(3)]
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for turn in range(40):
                    ref = refs[(seed + turn) % len(refs)]
                    store.put(ref, frame_of(ref, seed, rows=1 + seed % 3))
                    lease = store.get(ref)
                    if lease is not None:
                        assert is_intact(lease.view(), ref)
                        lease.close()
                    if turn % 5 == seed % 5:
                        store.remove(ref, RemoveReason.REMOVED)
            except BaseException as failure:  # noqa: BLE001 - reported by the test's own thread
                failures.append(failure)

        run_at_once([functools.partial(work, seed) for seed in range(8)])
        assert [] == failures


class CappedStoreConformance(StoreTests):
    """For stores with a cap: subclass beside `EntryStoreConformance`, with one factory."""

    def test_larger_than_the_cap_is_rejected(self, tmp_path: Path) -> None:
        """A frame that can never fit is rejected and counted, and nothing is evicted for it."""
        store = self.make_store(tmp_path, 1 << 20)
        store.put(REF, frame_of(REF))
        large = ref_of("large")
        assert PutOutcome.REJECTED is store.put(large, frame_of(large, rows=1024, width=1024))
        assert (1, 1, 0) == (
            store.stats().rejected,
            store.stats().entries,
            store.stats().evictions,
        )
        store.close()

    def test_the_cap_holds(self, tmp_path: Path) -> None:
        """However much is put, what is stored stays within the cap, and the newest is there."""
        capacity_nbytes = 256 << 10
        store = self.make_store(tmp_path, capacity_nbytes)
        for turn in range(60):
            ref = ref_of(f"input {turn}")
            assert PutOutcome.STORED is store.put(ref, frame_of(ref, rows=32 * (1 + turn % 3)))
            stats = store.stats()
            assert capacity_nbytes == stats.capacity_nbytes
            assert sum(info.nbytes for info in store.entries()) == stats.nbytes <= capacity_nbytes
            assert store.contains(ref)
        assert store.stats().evictions > 0
        store.close()

    def test_a_smaller_cap_holds_after_reopening(self, tmp_path: Path) -> None:
        """A store that holds three times its new cap is within it after one put."""
        store = self.make_store(tmp_path, 384 << 10)
        for turn in range(60):
            ref = ref_of(f"input {turn}")
            store.put(ref, frame_of(ref))
        store.close()
        store = self.make_store(tmp_path, 128 << 10)
        store.put(REF, frame_of(REF))
        assert store.contains(REF)
        assert sum(info.nbytes for info in store.entries()) <= 128 << 10
        store.close()


class SharedStoreConformance(EntryStoreConformance, CappedStoreConformance):
    """For capped stores that several processes share at one place: each sees what the others did."""

    def test_instances_see_each_other(self, store: EntryStore, tmp_path: Path) -> None:
        """What one instance published another serves at once; what one removed is gone for all."""
        peer = self.make_store(tmp_path, AMPLE_NBYTES)
        store.put(REF, frame_of(REF))
        assert peer.contains(REF)
        assert frame_bytes(frame_of(REF)) == read(peer)
        assert PutOutcome.ALREADY_PRESENT is peer.put(REF, frame_of(REF))
        assert list(store.entries()) == list(peer.entries())
        assert (1, store.stats().nbytes) == (peer.stats().entries, peer.stats().nbytes)
        assert peer.remove(REF, RemoveReason.REMOVED)
        assert (False, None) == (store.contains(REF), read(store))
        peer.close()

    def test_survives_reopening(self, tmp_path: Path) -> None:
        """What was put is there after the store was closed and opened again."""
        store = self.make_store(tmp_path, AMPLE_NBYTES)
        store.put(REF, frame_of(REF))
        store.close()
        store = self.make_store(tmp_path, AMPLE_NBYTES)
        assert frame_bytes(frame_of(REF)) == read(store)
        store.close()

    def test_one_cap_for_all_instances(self, tmp_path: Path) -> None:
        """Two instances that fill one place in turn stay within one cap together."""
        stores = [self.make_store(tmp_path, 128 << 10) for _ in range(2)]
        for turn in range(60):
            ref = ref_of(f"input {turn}")
            assert PutOutcome.STORED is stores[turn % 2].put(ref, frame_of(ref))
            assert sum(info.nbytes for info in stores[0].entries()) <= 128 << 10
        for store in stores:
            store.close()
