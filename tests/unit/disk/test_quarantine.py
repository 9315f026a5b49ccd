"""Damaged entries are out of sight and bounded."""

import errno

import pytest

from eccache.domain.errors import StoreFault
from eccache.domain.outcomes import RemoveReason
from eccache.testing.file_faults import intercepted
from eccache.testing.frames import ref_of
from tests.unit.disk.places import ENTRY_NBYTES, LAYOUT, SimulatedPlace, policy_of, put

REF = ref_of("an input")


def quarantine(place: SimulatedPlace, entries: int) -> None:
    """Put entries and quarantine each."""
    store = place.store()
    for number in range(entries):
        ref = ref_of(f"input {number}")
        put(store, ref)
        assert store.remove(ref, RemoveReason.QUARANTINED)
        place.clock.advance(1)


def kept(place: SimulatedPlace) -> int:
    """Return how many entries are in quarantine."""
    return len(place.disk.find(LAYOUT.quarantine).names)


def test_a_damaged_entry_is_kept_out_of_sight() -> None:
    """It is no entry any more, its bytes are there, it counts towards the cap, and it is told."""
    place = SimulatedPlace()
    quarantine(place, 1)
    store = place.store()
    assert (False, 0) == (store.contains(ref_of("input 0")), store.stats().entries)
    assert (1, ENTRY_NBYTES) == (kept(place), store.stats().nbytes)
    assert 1 == len(place.telemetry.named("store.entry.quarantined"))


def test_the_number_of_damaged_entries_is_bounded() -> None:
    """The oldest go first."""
    place = SimulatedPlace(policy=policy_of(quarantine_entries=3))
    quarantine(place, 5)
    assert 3 == kept(place)
    nodes = place.disk.find(LAYOUT.quarantine).names.values()
    assert place.clock.unix() - 3 == min(node.changed_ns for node in nodes) // 1_000_000_000


def test_the_bytes_of_damaged_entries_are_bounded() -> None:
    """Quarantine keeps its share of the capacity and no more."""
    place = SimulatedPlace(policy=policy_of(100 * ENTRY_NBYTES, quarantine_ratio=0.02))
    quarantine(place, 5)
    assert 2 == kept(place)


def test_a_damaged_entry_larger_than_quarantine_is_removed() -> None:
    """Nothing else goes for it."""
    place = SimulatedPlace(policy=policy_of(100 * ENTRY_NBYTES, quarantine_ratio=0.02))
    quarantine(place, 1)
    store = place.store()
    put(store, REF, rows=200)
    assert store.remove(REF, RemoveReason.QUARANTINED)
    assert (1, False) == (kept(place), store.contains(REF))


def test_a_damaged_entry_that_cannot_be_moved_is_removed() -> None:
    """Out of sight it must be, one way or the other."""
    place = SimulatedPlace()

    def refuse(operation: str) -> None:
        if operation == "rename" and armed:
            raise OSError(errno.EIO, "no")

    armed = False
    store = place.store(intercepted(place.process(), refuse))
    put(store, REF)
    armed = True
    assert store.remove(REF, RemoveReason.QUARANTINED)
    assert not store.contains(REF)


def test_a_damaged_entry_that_cannot_go_at_all_is_a_fault() -> None:
    """The caller is told that it is still there."""
    place = SimulatedPlace()
    put(place.store(), REF)

    def refuse(operation: str) -> None:
        if operation in ("rename", "unlink"):
            raise OSError(errno.EPERM, "no")

    store = place.store(intercepted(place.process(), refuse))
    with pytest.raises(StoreFault, match="remove failed"):
        store.remove(REF, RemoveReason.QUARANTINED)
    assert store.contains(REF)
    assert 1 == len(place.telemetry.named("store.entry.stays_damaged"))
    with pytest.raises(StoreFault, match="remove failed"):
        store.remove(REF, RemoveReason.REMOVED)
    assert 1 == len(place.telemetry.named("store.entry.stays_damaged"))
