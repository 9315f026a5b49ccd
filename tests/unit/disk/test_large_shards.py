"""Shards with more entries than a put can afford to look at."""

from eccache.domain.entry_ref import EntryRef
from eccache.domain.key import EntryKey
from eccache.domain.outcomes import PutOutcome
from eccache.testing.frames import NAMESPACE
from tests.unit.disk.places import ENTRY_NBYTES, SimulatedPlace, policy_of, put, read

ENTRIES = 100


def ref_in_one_shard(number: int) -> EntryRef:
    """Return the reference of an input that falls into the same shard as all the others."""
    key = EntryKey("model", (5 << 52) | number, "bfloat16")
    return EntryRef(NAMESPACE.fingerprint, key, number.to_bytes(32, "big"))


def fill(place: SimulatedPlace, entries: int, first: int = 0) -> None:
    """Put entries, a minute apart, from one process."""
    store = place.store()
    for number in range(first, first + entries):
        assert PutOutcome.STORED is put(store, ref_in_one_shard(number))
        place.clock.advance(60)


def test_the_cap_holds_in_a_large_shard() -> None:
    """It is counted up and down, and the count is right."""
    place = SimulatedPlace(policy=policy_of(ENTRIES * ENTRY_NBYTES))
    for first in range(0, 2 * ENTRIES, 10):
        fill(place, 10, first)
        assert place.nbytes_in() == place.store().stats().nbytes <= ENTRIES * ENTRY_NBYTES
    assert ENTRIES == place.store().stats().entries == len(list(place.store().entries()))


def test_a_put_into_a_large_shard_does_not_look_at_it() -> None:
    """Its directory is scanned when its turn comes or when something must go, not at each put."""
    place = SimulatedPlace()
    fill(place, ENTRIES)
    process = place.process()
    looked_at: list[str] = []
    scan = process.scan
    process.scan = lambda directory: looked_at.append(directory) or scan(directory)  # type: ignore[method-assign, func-returns-value]
    store = place.store(process)
    for number in range(ENTRIES, ENTRIES + 20):
        put(store, ref_in_one_shard(number))
    assert [] == [path for path in looked_at if path.endswith("/005")]


def test_a_replaced_entry_of_a_large_shard_is_counted_once_its_turn_comes() -> None:
    """Until then too much is counted, never too little."""
    place = SimulatedPlace()
    fill(place, ENTRIES)
    store = place.store()
    put(store, ref_in_one_shard(0), rows=5)
    assert ENTRIES + 1 == store.stats().entries
    parts = place.parts()
    for _ in range(4096):
        parts.accounting.rotate(parts.accounting.usage())
    assert (ENTRIES, place.nbytes_in()) == (store.stats().entries, store.stats().nbytes)


def test_an_entry_that_was_used_since_it_was_seen_stays() -> None:
    """Candidates are remembered from put to put; what became of them meanwhile counts."""
    place = SimulatedPlace(policy=policy_of(ENTRIES * ENTRY_NBYTES))
    store = place.store()
    for number in range(ENTRIES + 1):
        put(store, ref_in_one_shard(number))
        place.clock.advance(60)
    assert not store.contains(ref_in_one_shard(0))
    others = place.store()
    for number in range(ENTRIES, 0, -1):
        assert read(others, ref_in_one_shard(number)) is not None
        place.clock.advance(60)
    put(store, ref_in_one_shard(ENTRIES + 1))
    assert 1 == sum(not store.contains(ref_in_one_shard(n)) for n in range(1, ENTRIES + 1))
    assert store.contains(ref_in_one_shard(1))
