"""Each operation of each verb fails in turn, with each errno that a file system knows."""

import errno
import itertools
from collections.abc import Callable, Iterator

import attrs
import pytest

from eccache.adapters.disk import DiskStore, Durability
from eccache.adapters.disk.faults import FULL
from eccache.domain.errors import StoreFault
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.file_faults import FailingAt, failing, featureless, intercepted, short
from eccache.testing.frames import frame_bytes, frame_of, ref_of
from tests.unit.disk.places import LAYOUT, SimulatedPlace, policy_of, put, read

REF = ref_of("an input")
OTHER = ref_of("another input")
OLD = frame_bytes(frame_of(REF, 0, rows=4))
NEW = frame_bytes(frame_of(REF, 1, rows=5))
ERRNOS = [
    errno.ENOSPC,
    errno.EIO,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENOMEM,
    errno.EPERM,
    errno.EINTR,
    errno.EROFS,
    errno.ENOENT,
]
ERRNO_NAMES = [errno.errorcode[number] for number in ERRNOS]


@attrs.frozen
class Failed:
    """A verb of which one operation failed.

    Attributes:
        place: where.
        operation: which one.
        result: what the verb returned; a `StoreFault` if it raised one.
        descriptors: how many it left open.
    """

    place: SimulatedPlace
    operation: str
    result: object
    descriptors: int


@attrs.define
class Gate:
    """Lets faults through once the store is open: what opening makes of them is tested elsewhere."""

    behind: Callable[[str], None]
    is_open: bool = False

    def __call__(self, operation: str) -> None:
        """Hand an operation on."""
        if self.is_open:
            self.behind(operation)


def failures(
    verb: Callable[[DiskStore], object],
    number: int,
    *,
    durability: str = "process",
    fresh: bool = False,
) -> Iterator[Failed]:
    """Yield *verb* failing, once at each of its operations; nothing but a `StoreFault` may be raised."""
    step = 0
    while True:
        place = SimulatedPlace(policy=policy_of(durability=Durability(durability)))
        process = place.process()
        if not fresh:
            put(place.store(process), OTHER)
            put(place.store(process), REF)
        failing_at = FailingAt(step, number)
        gate = Gate(failing_at)
        store = place.store(intercepted(process, gate))
        gate.is_open = True
        try:
            result = verb(store)
        except StoreFault as fault:
            result = fault
        if failing_at.operation is None:
            return
        yield Failed(place, failing_at.operation, result, process.open_descriptors)
        step += 1


def put_new(store: DiskStore) -> PutOutcome:
    """Put another shape over what is there."""
    return put(store, REF, 1, rows=5)


@pytest.mark.parametrize(
    ("number", "durability", "fresh"),
    [
        *((number, "process", False) for number in ERRNOS),
        *itertools.product((errno.EIO, errno.ENOSPC), ("process",), (True,)),
        *itertools.product((errno.EIO, errno.ENOSPC), ("power",), (False, True)),
    ],
)
def test_a_put_fails_as_a_whole_or_not_at_all(number: int, durability: str, *, fresh: bool) -> None:
    """A fault leaves the old entry or none, no file, no descriptor; a success leaves the new one."""
    for failed in failures(put_new, number, durability=durability, fresh=fresh):
        found = read(failed.place.store(), REF)
        if failed.result is PutOutcome.STORED:
            assert NEW == found, failed.operation
        else:
            assert isinstance(failed.result, StoreFault), failed.operation
            may_be_gone = fresh or number in FULL or durability == "power"
            assert found in ({OLD, None} if may_be_gone else {OLD}), failed.operation
        assert 0 == failed.descriptors, failed.operation
        if failed.operation != "unlink":
            assert [] == failed.place.unfinished(), failed.operation
        if number not in FULL and not fresh:  # There, others may have been evicted to make room.
            assert read(failed.place.store(), OTHER) is not None
        assert PutOutcome.REJECTED is not put_new(failed.place.store())
        assert NEW == read(failed.place.store(), REF)


@pytest.mark.parametrize("number", ERRNOS, ids=ERRNO_NAMES)
def test_a_get_is_the_entry_or_a_fault(number: int) -> None:
    """A fault while reading is told, never taken for an absence, and deletes nothing."""
    for failed in failures(lambda store: read(store, REF), number):
        if isinstance(failed.result, StoreFault):
            assert number != errno.ENOENT or failed.operation != "open"
        else:
            missing = number == errno.ENOENT and failed.operation == "open"
            assert (None if missing else OLD) == failed.result, failed.operation
        assert 0 == failed.descriptors, failed.operation
        assert OLD == read(failed.place.store(), REF)


@pytest.mark.parametrize("number", ERRNOS, ids=ERRNO_NAMES)
def test_what_is_cached_is_the_entry_or_nothing(number: int) -> None:
    """A fault is left to `get`, which tells of it."""
    for failed in failures(lambda store: bytes(store.cached_frame(REF) or b""), number):
        assert failed.result == (OLD if failed.operation == "close" else b""), failed.operation
        assert 0 == failed.descriptors, failed.operation


@pytest.mark.parametrize("number", ERRNOS, ids=ERRNO_NAMES)
def test_contains_never_raises(number: int) -> None:
    """A fault is False."""
    assert [False] == [failed.result for failed in failures(lambda s: s.contains(REF), number)]


@pytest.mark.parametrize("reason", RemoveReason)
@pytest.mark.parametrize("number", ERRNOS, ids=ERRNO_NAMES)
def test_a_removal_is_done_or_told(number: int, reason: RemoveReason) -> None:
    """Whether the entry is gone is what the caller was told."""
    for failed in failures(lambda store: store.remove(REF, reason), number):
        gone = read(failed.place.store(), REF) is None
        if number == errno.ENOENT and failed.result is False:
            continue  # It was told that there is nothing, and says so.
        assert (failed.result is True) == gone, failed.operation
        assert failed.result is True or isinstance(failed.result, StoreFault)


@pytest.mark.parametrize("number", ERRNOS, ids=ERRNO_NAMES)
def test_statistics_and_listing_never_raise(number: int) -> None:
    """What can't be looked at is left out."""
    for failed in failures(lambda store: store.stats(), number):
        assert not isinstance(failed.result, StoreFault)
    for failed in failures(lambda store: list(store.entries()), number):
        assert isinstance(failed.result, list)


def test_a_fault_says_cause_and_remedy() -> None:
    """An operator learns what failed, where, and what to do."""
    place = SimulatedPlace()
    store = place.store(failing(place.process(), "create", number=errno.ENOSPC))
    with pytest.raises(StoreFault, match=r"put failed: No space left.*Remedy: free space"):
        put(store, REF)


def test_a_full_file_system_is_relieved_by_eviction() -> None:
    """Where room is refused below the cap (a quota that nobody tells of), own entries go first."""
    place = SimulatedPlace()
    store = place.store()
    for number in range(20):
        put(store, ref_of(f"input {number}"))
    place.disk.capacity_nbytes = place.disk.used_nbytes()
    assert PutOutcome.STORED is put(store, REF)
    assert store.stats().evictions > 0
    assert read(store, REF) is not None


def test_a_file_system_without_room_for_another_file_is_relieved() -> None:
    """Where inodes run out, entries go, and then the directories that they left empty."""
    place = SimulatedPlace()
    put(place.store(), ref_of("something"))
    limit = len(place.disk.nodes()) + 20

    def full(operation: str) -> None:
        if operation in ("create", "make_directory") and len(place.disk.nodes()) >= limit:
            raise OSError(errno.ENOSPC, "no inode left")

    store = place.store(intercepted(place.process(), full))
    for number in range(60):
        ref = ref_of(f"input {number}")
        assert PutOutcome.STORED is put(store, ref), number
        assert read(store, ref) is not None


def test_where_nothing_may_give_way_a_full_file_system_is_a_fault() -> None:
    """A store that must not evict leaves every entry where it is."""
    place = SimulatedPlace(policy=policy_of(evicts=False))
    for number in range(20):
        put(place.store(), ref_of(f"input {number}"))
    store = place.store(failing(place.process(), "create", number=errno.ENOSPC))
    with pytest.raises(StoreFault, match="put failed"):
        put(store, REF)
    assert (20, 0) == (len(list(store.entries())), store.stats().evictions)


def test_short_writes_and_reads_are_continued() -> None:
    """A system that writes and reads half of what it is asked to loses nothing."""
    place = SimulatedPlace()
    store = place.store(featureless(short(place.process())))
    assert PutOutcome.STORED is put(store, REF)
    assert OLD == read(store, REF) == read(place.store(), REF)
    assert (1, 8192) == (store.stats().entries, store.stats().nbytes)


def test_a_medium_that_takes_no_more_is_a_fault() -> None:
    """Writing nothing, again and again, ends."""
    place = SimulatedPlace()
    process = place.process()
    store = place.store(process)
    process.write = lambda *_: 0  # type: ignore[method-assign]
    with pytest.raises(StoreFault):
        put(store, REF)
    assert [] == place.unfinished()


def test_what_a_file_system_lacks_is_said_once() -> None:
    """Without allocation, mapping and locks everything works, and each is said once."""
    place = SimulatedPlace()
    store = place.store(featureless(place.process()))
    for number in range(3):
        ref = ref_of(f"input {number}")
        assert PutOutcome.STORED is put(store, ref)
        assert read(store, ref) is not None
    said = [event.name for event in place.telemetry.events]
    assert ["store.allocation.unsupported", "store.mapping.unsupported"] == sorted(said)


def test_a_file_that_shrinks_while_it_is_copied_is_a_fault() -> None:
    """Without mappings a read that comes up short is told."""
    place = SimulatedPlace()
    store = place.store(featureless(place.process()))
    put(store, REF)
    lease = store.get(REF)
    assert lease is not None
    del place.disk.find(LAYOUT.entry(REF)).data[100:]
    with pytest.raises(StoreFault, match="shorter"):
        lease.view()
    lease.close()


def test_a_closed_lease_reads_nothing() -> None:
    """After `close` there is no file to read from."""
    place = SimulatedPlace()
    store = place.store()
    put(store, REF)
    lease = store.get(REF)
    assert lease is not None
    lease.close()
    with pytest.raises(StoreFault, match="closed"):
        lease.view()


def test_a_lease_that_is_dropped_closes_its_file() -> None:
    """A lease that nobody closes costs no descriptor for longer than it lives."""
    place = SimulatedPlace()
    process = place.process()
    store = place.store(process)
    put(store, REF)
    lease = store.get(REF)
    assert 1 == process.open_descriptors
    del lease
    assert 0 == process.open_descriptors


def test_a_read_that_fails_is_a_fault() -> None:
    """A lease says so, also when it copies."""
    place = SimulatedPlace()
    put(place.store(), REF)
    lease = place.store(failing(place.process(), "read", number=errno.EIO)).get(REF)
    assert lease is not None
    with pytest.raises(StoreFault, match=r"read failed.*kernel's log"):
        lease.read_into(memoryview(bytearray(10)))
    lease.close()
