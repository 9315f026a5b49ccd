"""The cap, the floor of free space, and the accounting that keeps them."""

import errno
import random

import pytest

from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.file_faults import failing, intercepted
from eccache.testing.frames import ref_of
from tests.unit.disk.places import ENTRY_NBYTES, LAYOUT, SimulatedPlace, policy_of, put, read

REF = ref_of("an input")
ANOTHER = Namespace.from_ingredients({"revision": "another"})


def fill(place: SimulatedPlace, entries: int, first: int = 0) -> None:
    """Put *entries* entries, a minute apart."""
    store = place.store()
    for number in range(first, first + entries):
        assert PutOutcome.STORED is put(store, ref_of(f"input {number}"))
        place.clock.advance(60)


def charted(place: SimulatedPlace) -> int:
    """Return the bytes that the table has."""
    return sum(place.parts().accounting.usage().nbytes)


def test_the_table_is_what_is_there() -> None:
    """After any puts and removals the table's sum is the sum over the files."""
    place = SimulatedPlace()
    fill(place, 30)
    for number in range(0, 30, 3):
        place.store().remove(ref_of(f"input {number}"), RemoveReason.REMOVED)
    assert (20, 20 * ENTRY_NBYTES) == (place.store().stats().entries, charted(place))


def test_where_nothing_may_give_way_a_put_above_the_bounds_is_rejected() -> None:
    """Neither for the cap nor for the floor of free space is anything evicted."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES, evicts=False))
    fill(place, 10)
    store = place.store()
    assert PutOutcome.REJECTED is put(store, REF)
    place.disk.capacity_nbytes = 40 * ENTRY_NBYTES
    place.policy = policy_of(99 * ENTRY_NBYTES, free_space_ratio=0.99, evicts=False)
    assert PutOutcome.REJECTED is put(place.store(), REF)
    assert (10, 0) == (store.stats().entries, place.telemetry.counters["evictions"])


@pytest.mark.parametrize("damage", ["removed", "truncated", "garbage", "other machine"])
def test_a_lost_table_is_made_anew(damage: str) -> None:
    """A table that is gone, or none, is counted anew by the next put; the cap holds meanwhile."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    table = place.disk.find(LAYOUT.usage)
    if damage == "removed":
        place.process().unlink(LAYOUT.usage)
    elif damage == "truncated":
        del table.data[1000:]
    elif damage == "garbage":
        table.data[:] = random.Random(0).randbytes(len(table.data))
    else:
        table.data[:8] = bytes(table.data[:8])[::-1]
    fill(place, 1, first=10)
    assert 10 * ENTRY_NBYTES == place.nbytes_in() == charted(place)


def test_what_changes_while_a_table_is_made_anew_is_counted() -> None:
    """Others put and remove while everything is scanned; no number is too low until its turn comes."""
    place = SimulatedPlace()
    fill(place, 20)
    other = place.store()
    process = place.process()
    changed: list[str] = []

    def change(operation: str) -> None:
        if operation == "rename":
            changed.append(operation)
            assert PutOutcome.STORED is put(other, ref_of("new shard"))
            assert PutOutcome.STORED is put(other, ref_of("input 3"), rows=3000)
            assert PutOutcome.STORED is put(other, ref_of("input 2", namespace=ANOTHER))
            assert other.remove(ref_of("input 5"), RemoveReason.REMOVED)

    place.parts(intercepted(process, change)).accounting.rebuild()
    assert 1 == len(changed)
    assert place.nbytes_in() == charted(place)


def test_a_lost_table_is_not_made_by_queries() -> None:
    """Statistics of a root without a table make none."""
    place = SimulatedPlace()
    fill(place, 1)
    place.process().unlink(LAYOUT.usage)
    assert 0 == place.store().stats().entries
    assert "usage" not in place.disk.find(LAYOUT.version).names


def test_wrong_numbers_converge() -> None:
    """The rotation mends whatever is wrong in the table within 4,096 puts."""
    place = SimulatedPlace()
    fill(place, 20)
    table = place.disk.find(LAYOUT.usage)
    table.data[64:] = random.Random(0).randbytes(len(table.data) - 64)
    parts = place.parts()
    for _ in range(4096):
        parts.accounting.rotate(parts.accounting.usage())
    assert 20 * ENTRY_NBYTES == charted(place)


def test_planted_entries_are_counted_in_time() -> None:
    """Files that appear without the table's knowledge are found by the rotation, and then evicted."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    stale = bytes(place.disk.find(LAYOUT.usage).data)
    place.policy = policy_of()
    fill(place, 20, first=10)
    place.disk.find(LAYOUT.usage).data[:] = stale
    place.policy = policy_of(10 * ENTRY_NBYTES)
    parts = place.parts()
    for _ in range(4096):
        parts.accounting.rotate(parts.accounting.usage())
    fill(place, 1, first=30)
    assert place.nbytes_in() <= 10 * ENTRY_NBYTES


def test_a_change_during_a_rescan_is_seen() -> None:
    """A shard that another process changes while it is looked at is looked at again."""
    place = SimulatedPlace()
    put(place.store(), REF)
    other = place.store()
    raced: list[str] = []

    def race(operation: str) -> None:
        if operation == "write" and not raced:
            raced.append(operation)
            other.remove(REF, RemoveReason.REMOVED)

    shard = int(LAYOUT.entry(REF).split("/")[-2], 16)
    place.parts(intercepted(place.process(), race)).accounting.rescan(shard)
    assert 0 == charted(place)


def test_a_table_that_cannot_be_kept_stops_puts_only() -> None:
    """Without accounting the cap can't be kept: puts are faults, reads go on."""
    place = SimulatedPlace()
    fill(place, 1)
    process = place.process()
    process.unlink(LAYOUT.usage)
    process.make_directory(LAYOUT.usage, 0o700)
    with pytest.raises(Exception, match="put failed"):
        put(place.store(), REF)
    assert read(place.store(), ref_of("input 0")) is not None


def test_the_least_recently_used_go_first() -> None:
    """Reading an entry keeps it; what was not read goes, oldest first."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    for number in (0, 2, 4):
        read(place.store(), ref_of(f"input {number}"))
        place.clock.advance(60)
    fill(place, 3, first=10)
    left = {n for n in range(13) if place.store().contains(ref_of(f"input {n}"))}
    assert {0, 2, 4, 6, 7, 8, 9, 10, 11, 12} == left


def test_one_cap_for_all_namespaces() -> None:
    """What nobody uses any more, after an upgrade for instance, gives way to what is."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    upgraded = Namespace.from_ingredients({"revision": "next"})
    store = place.store()
    for number in range(6):
        put(store, ref_of(f"input {number}", namespace=upgraded))
        assert place.nbytes_in() == charted(place) == 10 * ENTRY_NBYTES
    left = {n for n in range(10) if store.contains(ref_of(f"input {n}"))}
    assert {6, 7, 8, 9} == left


def test_reading_touches_now_and_then() -> None:
    """Recency costs a system call in five seconds, not one a read; `contains` costs none."""
    place = SimulatedPlace()
    process = place.process()
    store = place.store(process)
    put(store, REF)
    for _ in range(3):
        place.clock.advance(6)
        process.operations.clear()
        for _ in range(4):
            read(store, REF)
            store.contains(REF)
            place.clock.advance(1)
        assert 1 == process.operations.count("set_modified")


def test_a_put_of_what_is_stored_is_a_use() -> None:
    """A put that finds its entry stored keeps it from going first."""
    place = SimulatedPlace(policy=policy_of(3 * ENTRY_NBYTES))
    fill(place, 3)
    assert PutOutcome.ALREADY_PRESENT is put(place.store(), ref_of("input 0"))
    fill(place, 1, first=3)
    assert place.store().contains(ref_of("input 0"))


@pytest.mark.parametrize("jump_seconds", [-1e8, 1e8])
def test_a_clock_that_is_set_keeps_eviction_sane(jump_seconds: float) -> None:
    """Whichever way the clock jumps, what was used after the jump outlives what was not."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    place.clock.jump(jump_seconds)
    for number in (0, 1, 2):
        read(place.store(), ref_of(f"input {number}"))
        place.clock.advance(60)
    fill(place, 7, first=10)
    left = {n for n in range(17) if place.store().contains(ref_of(f"input {n}"))}
    assert {0, 1, 2, *range(10, 17)} == left


def test_a_time_from_the_far_future_does_not_live_for_ever() -> None:
    """Entries used while the clock was wrong by a year go when newer ones need the room."""
    place = SimulatedPlace(policy=policy_of(4 * ENTRY_NBYTES))
    place.clock.jump(3e7)
    fill(place, 4)
    place.clock.jump(-3e7)
    fill(place, 4, first=4)
    left = {n for n in range(8) if place.store().contains(ref_of(f"input {n}"))}
    assert {4, 5, 6, 7} == left


def test_clocks_that_differ_a_little_are_believed() -> None:
    """A time of last use a minute ahead, from another host's clock, is no reason to go first."""
    place = SimulatedPlace(policy=policy_of(2 * ENTRY_NBYTES))
    fill(place, 1)
    place.clock.jump(100)
    fill(place, 1, first=1)
    place.clock.jump(-160)
    fill(place, 1, first=2)
    assert place.store().contains(ref_of("input 1"))


def test_what_cannot_be_deleted_is_stepped_over() -> None:
    """If the oldest entries can't be deleted, others go in their place."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    fill(place, 10)
    process = place.process()
    unlink = process.unlink
    immortal = {LAYOUT.entry(ref_of(f"input {number}")) for number in range(5)}

    def refuse(path: str) -> None:
        if path in immortal:
            raise PermissionError(errno.EPERM, "immutable")
        unlink(path)

    process.unlink = refuse  # type: ignore[method-assign]
    store = place.store(process)
    for number in range(10, 14):
        assert PutOutcome.STORED is put(store, ref_of(f"input {number}"))
    assert place.nbytes_in() <= 10 * ENTRY_NBYTES
    assert all(store.contains(ref_of(f"input {number}")) for number in range(5))


def test_where_nothing_can_be_deleted_puts_are_rejected() -> None:
    """The cap holds though eviction does not work; what is stored is served."""
    place = SimulatedPlace(policy=policy_of(4 * ENTRY_NBYTES))
    fill(place, 4)
    store = place.store(failing(place.process(), "unlink", number=errno.EPERM))
    assert PutOutcome.REJECTED is put(store, REF)
    assert (4 * ENTRY_NBYTES, 1) == (place.nbytes_in(), store.stats().rejected)
    assert read(store, ref_of("input 3")) is not None


def test_others_unfinished_writes_count() -> None:
    """What another process is writing has its place under the cap already."""
    place = SimulatedPlace(policy=policy_of(4 * ENTRY_NBYTES))
    fill(place, 4)
    with place.parts().temporaries.created() as temporary:
        place.process()  # the writer's own lock is what keeps it
        place.disk.reserve(place.disk.find(temporary.path), 2 * ENTRY_NBYTES)
        put(place.store(), REF)
        assert place.nbytes_in() <= 4 * ENTRY_NBYTES
        assert 2 == place.store().stats().entries


def test_nothing_is_evicted_for_what_would_not_fit_all_the_same() -> None:
    """While others write as much as the cap allows, a put is rejected and what is stored stays."""
    place = SimulatedPlace(policy=policy_of(4 * ENTRY_NBYTES))
    fill(place, 2)
    with place.parts().temporaries.created() as temporary:
        place.disk.reserve(place.disk.find(temporary.path), 4 * ENTRY_NBYTES)
        store = place.store()
        assert PutOutcome.REJECTED is put(store, REF)
        assert (2, 1) == (store.stats().entries, store.stats().rejected)
    assert PutOutcome.STORED is put(store, REF)


def test_the_cap_holds_where_a_file_system_does_not_tell_of_blocks() -> None:
    """Some tell late and some never what a file occupies; its length counts at the least."""
    place = SimulatedPlace(policy=policy_of(10 * ENTRY_NBYTES))
    place.disk.reserve = lambda *_: None  # type: ignore[method-assign]
    fill(place, 40)
    assert 0 == place.nbytes_in()
    lengths = [len(node.data) for node in place.disk.nodes() if len(node.data) < 2 * ENTRY_NBYTES]
    assert 9 * ENTRY_NBYTES < sum(lengths) <= 10 * ENTRY_NBYTES
    assert sum(lengths) == charted(place)


def test_dead_unfinished_writes_go_before_entries() -> None:
    """What a killed process left is collected when room is needed; no entry goes for it."""
    place = SimulatedPlace(policy=policy_of(5 * ENTRY_NBYTES))
    fill(place, 4)
    process = place.process()
    descriptor = process.create(f"{LAYOUT.temporary}/left", 0o600)
    process.lock(descriptor)
    process.allocate(descriptor, ENTRY_NBYTES)
    process.die()
    put(place.store(), REF)
    assert (5, []) == (place.store().stats().entries, place.unfinished())


def test_the_floor_of_free_space_is_kept() -> None:
    """A put that would leave less free space than the policy says evicts, and if need be is rejected."""
    place = SimulatedPlace(policy=policy_of(free_space_ratio=0.5))
    place.disk.capacity_nbytes = 40 * ENTRY_NBYTES
    fill(place, 30)
    assert 18 * ENTRY_NBYTES <= place.disk.used_nbytes() <= 20 * ENTRY_NBYTES
    others = place.disk.make("/others", 0o100600)
    others.reserved_nbytes = 35 * ENTRY_NBYTES
    assert PutOutcome.REJECTED is put(place.store(), REF)
    (event,) = place.telemetry.named("store.space.low")
    assert "min_free_space_ratio" in str(event.fields["remedy"])


def test_a_put_yields_only_some_of_the_cache_to_others() -> None:
    """Others who fill the file system get room put by put; not all that is stored at once."""
    place = SimulatedPlace(policy=policy_of(1 << 40, free_space_ratio=0.5))
    place.disk.capacity_nbytes = 1 << 40
    fill(place, 20)
    for node in place.disk.nodes():
        if len(node.data) > 4096 and node is not place.disk.find(LAYOUT.usage):
            node.reserved_nbytes = 16 << 20
    others = place.disk.make("/others", 0o100600)
    others.reserved_nbytes = 1 << 39
    place.parts().accounting.rebuild()
    assert PutOutcome.REJECTED is put(place.store(), REF)
    assert 20 - 64 // 16 - 1 == place.store().stats().entries
