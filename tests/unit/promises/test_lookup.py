"""One look-up: a copy is promised only if it, the copy, is exactly the entry; else nothing stays behind."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.app.promises import lookup as lookup_module
from eccache.app.promises.lookup import EntryLookup
from eccache.app.promises.lookup_job import Finding, LookupJob, NoRoom
from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
from eccache.domain.entry_format import FrameHasher, header_block, seal
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault, StoreTimeout
from eccache.domain.frame import FreshFrame
from eccache.domain.outcomes import LookupOutcome, RemoveReason
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.shared_copy import SharedCopy
from eccache.ports.storage import EntryStore, ReadLease
from eccache.testing.clock import ManualClock
from eccache.testing.frames import DamagedFrame, colliding_ref, frame_bytes, frame_of, ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.promises.parts import (
    ample_budget,
    held_copies,
    job_of,
    memfd_copies,
    memory_store,
)
from tests.unit.wrapped_store import WrappedStore

REF = ref_of("an input")


class Looking:
    """A look-up over a store, with what it is made of."""

    def __init__(self, store: EntryStore, budget: CopyBudget | None = None) -> None:
        self.telemetry = RecordingTelemetry()
        self.budget = budget or ample_budget()
        self.copies = memfd_copies()
        self.clock = ManualClock()
        self.look_up = EntryLookup(store, self.copies, self.budget, self.clock, self.telemetry)

    def find(self, ref: EntryRef = REF) -> Finding:
        """Look *ref* up."""
        return self.look_up(job_of(ref))

    def expect_nothing_left(self) -> None:
        """Require that neither memory nor budget is held."""
        assert (0, 0) == (self.budget.nbytes, self.budget.copies)
        assert 0 == held_copies()


def disk_store(root: Path) -> DiskStore:
    """Return the native store."""
    return DiskStore(
        str(root / "root"),
        policy=DiskPolicy(capacity_nbytes=1 << 30, free_space_ratio=0),
        files=SystemFiles(),
        clock=SystemClock(),
        telemetry=RecordingTelemetry(),
    )


def the_file(root: Path) -> Path:
    """Return the one entry's file."""
    (path,) = root.rglob("*.safetensors")
    return path


def rewrite(path: Path, offset: int, change: bytes) -> None:
    """Change bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(change)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "truncated": lambda path: os.truncate(path, 4096),
    "emptied": lambda path: os.truncate(path, 0),
    "flipped in the payload": lambda path: rewrite(path, path.stat().st_size - 1, b"\xff"),
    "flipped in the header": lambda path: rewrite(path, 100, b"\xff"),
}


def test_an_entry_becomes_a_copy_that_is_the_entry() -> None:
    """Every byte is there, under the rows that the tensor has."""
    store = memory_store()
    frame = frame_of(REF, rows=6)
    store.put(REF, frame)
    looking = Looking(store)
    found = looking.find()
    assert isinstance(found, PromisedCopy)
    assert 6 == found.rows
    assert frame_bytes(frame) == bytes(looking.copies.map(found.pid, found.fd, found.nbytes))
    assert frame.nbytes == looking.budget.nbytes
    assert frame.spec.nbytes == looking.telemetry.counters["bytes_read"]
    found.close()
    looking.expect_nothing_left()


def test_an_entry_of_several_pieces_is_copied_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its length is no multiple of a piece."""
    monkeypatch.setattr(lookup_module, "PIECE_NBYTES", 1000)
    store = memory_store()
    store.put(REF, frame_of(REF))
    found = Looking(store).find()
    assert isinstance(found, PromisedCopy)
    found.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_copy_is_untouched_by_whatever_happens_to_the_file(damage: str, tmp_path: Path) -> None:
    """Once promised, deletion, truncation and flipped bits in place change nothing."""
    store = disk_store(tmp_path)
    frame = frame_of(REF)
    store.put(REF, frame)
    looking = Looking(store)
    found = looking.find()
    assert isinstance(found, PromisedCopy)
    DAMAGES[damage](the_file(tmp_path))
    assert frame_bytes(frame) == bytes(looking.copies.map(found.pid, found.fd, found.nbytes))
    found.close()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_between_opening_and_copying_is_never_promised(damage: str, tmp_path: Path) -> None:
    """What is deleted meanwhile is whole still; anything else is no hit, and no copy stays."""

    class Damaging(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            lease = super().get(ref, deadline=deadline)
            DAMAGES[damage](the_file(tmp_path))
            return lease

    store = disk_store(tmp_path)
    store.put(REF, frame_of(REF))
    looking = Looking(Damaging(store))
    found = looking.find()
    if damage == "deleted":
        assert isinstance(found, PromisedCopy)
        found.close()
    else:
        assert found in {LookupOutcome.CORRUPT, LookupOutcome.ERROR}
    looking.expect_nothing_left()


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_while_copying_is_never_promised(damage: str, tmp_path: Path) -> None:
    """A file that changes, or loses its pages, between mapping and copying can't end the process."""

    class DamagingLease:
        def __init__(self, lease: ReadLease) -> None:
            self.lease = lease
            self.nbytes = lease.nbytes
            self.read_into = lease.read_into
            self.close = lease.close

        def view(self) -> memoryview:
            view = self.lease.view()
            DAMAGES[damage](the_file(tmp_path))
            return view

    class Damaging(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            lease = super().get(ref, deadline=deadline)
            assert lease is not None
            return DamagingLease(lease)

    store = disk_store(tmp_path)
    store.put(REF, frame_of(REF, rows=1000))
    looking = Looking(Damaging(store))
    found = looking.find()
    if damage == "deleted":
        assert isinstance(found, PromisedCopy)
        found.close()
    else:
        assert found in {LookupOutcome.CORRUPT, LookupOutcome.ERROR}
    looking.expect_nothing_left()


def test_what_is_not_there_is_a_miss() -> None:
    """The only meaning of an empty answer."""
    looking = Looking(memory_store())
    assert LookupOutcome.MISS is looking.find()
    looking.expect_nothing_left()


def test_a_damaged_entry_is_quarantined(tmp_path: Path) -> None:
    """It is found damaged once, and then it is out of sight."""
    store = disk_store(tmp_path)
    store.put(REF, frame_of(REF))
    DAMAGES["flipped in the payload"](the_file(tmp_path))
    looking = Looking(store)
    assert LookupOutcome.CORRUPT is looking.find()
    assert 1 == len(looking.telemetry.named("lookup.entry.corrupt"))
    assert LookupOutcome.MISS is looking.find()
    assert 1 == store.stats().quarantined
    looking.expect_nothing_left()


@pytest.mark.parametrize("nbytes", [0, 1, 4095])
def test_an_entry_too_short_to_be_one_is_corrupt(nbytes: int, tmp_path: Path) -> None:
    """Even one of no bytes at all."""
    store = disk_store(tmp_path)
    store.put(REF, frame_of(REF))
    os.truncate(the_file(tmp_path), nbytes)
    looking = Looking(store)
    assert LookupOutcome.CORRUPT is looking.find()
    looking.expect_nothing_left()


def test_damage_that_can_not_be_taken_away_is_corrupt_all_the_same() -> None:
    """What was found out counts, also on a medium that no longer can be written."""

    class ReadOnly(WrappedStore):
        def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
            raise StoreFault("read-only")

    store = memory_store()
    store.put(REF, DamagedFrame(frame_of(REF)))
    assert LookupOutcome.CORRUPT is Looking(ReadOnly(store)).find()


def test_another_inputs_entry_under_the_same_name_is_a_miss_and_stays() -> None:
    """A collision of 64-bit hashes costs an encoder run, and never another input's rows."""
    store = memory_store()
    other = colliding_ref(REF)
    store.put(other, frame_of(other))
    looking = Looking(store)
    assert LookupOutcome.MISS is looking.find(REF)
    assert store.contains(other)
    looking.expect_nothing_left()


def test_another_versions_entry_is_a_miss_and_stays() -> None:
    """A later format is left to those who know it."""

    class LaterFrame:
        def __init__(self, frame: FreshFrame) -> None:
            self._frame = frame
            self.spec = frame.spec
            self.nbytes = frame.nbytes

        def pieces(self) -> Iterator[tuple[int, memoryview]]:
            yield 0, memoryview(later_format(frame_bytes(self._frame)))

    store = memory_store()
    store.put(REF, LaterFrame(frame_of(REF)))
    assert LookupOutcome.MISS is Looking(store).find()
    assert store.contains(REF)


def later_format(whole: bytes) -> bytes:
    """Return a frame with another version in it, sealed anew."""
    changed = bytearray(whole.replace(b'"format":"1"', b'"format":"9"'))
    hasher = FrameHasher()
    hasher.update(changed)
    seal(changed, hasher.digest())
    return bytes(changed)


def test_a_tensor_without_rows_is_copied_but_equals_no_need() -> None:
    """The ledger sees no rows in it, so no request gets it."""
    store = memory_store()
    spec = TensorSpec("bfloat16", (4,))
    store.put(REF, FreshFrame(REF, spec, memoryview(bytes(spec.nbytes)), {}))
    found = Looking(store).find()
    assert isinstance(found, PromisedCopy)
    assert found.rows is None
    found.close()


def test_no_room_is_told_with_the_size_that_is_wanted() -> None:
    """Nothing is allocated before the budget has been charged."""
    store = memory_store()
    frame = frame_of(REF)
    store.put(REF, frame)
    looking = Looking(store, CopyBudget(frame.nbytes - 1, 10, RecordingTelemetry()))
    assert NoRoom(frame.nbytes) == looking.find()
    looking.expect_nothing_left()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (StoreFault("disk"), LookupOutcome.ERROR),
        (StoreTimeout("slow"), LookupOutcome.TIMEOUT),
    ],
)
def test_a_store_that_fails_is_told_apart_from_one_that_is_slow(
    fault: StoreFault, expected: LookupOutcome
) -> None:
    """Errors and timeouts are different counters."""

    class Failing(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            raise fault

    looking = Looking(Failing(memory_store()))
    assert expected is looking.find()
    assert 1 == len(looking.telemetry.named("lookup.entry.failed"))


def test_the_store_is_told_the_deadline() -> None:
    """A remote tier can stop when nobody waits any more."""
    told: list[float | None] = []

    class Listening(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            told.append(deadline)
            return None

    Looking(Listening(memory_store())).look_up(job_of(REF, deadline=1234.5))
    assert [1234.5] == told


def test_a_copy_that_can_not_be_made_is_an_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No memory, no descriptor, no seal: whatever fails halfway is undone."""
    store = memory_store()
    store.put(REF, frame_of(REF))

    def failing(*_: object) -> SharedCopy:
        raise StoreFault("no")

    for where in ("create", "map"):
        looking = Looking(store)
        monkeypatch.setattr(looking.copies, where, failing)
        assert LookupOutcome.ERROR is looking.find()
        looking.expect_nothing_left()


def test_a_look_up_that_nobody_wants_stops_between_two_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An aborted request costs at most one piece more."""
    monkeypatch.setattr(lookup_module, "PIECE_NBYTES", 4096)

    class AbandonedLease:
        def __init__(self, lease: ReadLease, job: LookupJob) -> None:
            self.lease = lease
            self.job = job
            self.nbytes = lease.nbytes
            self.read_into = lease.read_into
            self.close = lease.close

        def view(self) -> memoryview:
            self.job.abandoned = True
            return self.lease.view()

    class Abandoning(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            lease = super().get(ref, deadline=deadline)
            assert lease is not None
            return AbandonedLease(lease, job)

    store = memory_store()
    store.put(REF, frame_of(REF))
    looking = Looking(Abandoning(store))
    job = job_of(REF)
    assert LookupOutcome.MISS is looking.look_up(job)
    assert 0 == looking.telemetry.counters["bytes_read"]
    looking.expect_nothing_left()


def test_the_time_of_a_look_up_counts_from_when_it_was_asked_for() -> None:
    """Waiting for a thread is part of it."""
    looking = Looking(memory_store())
    job = job_of(REF)
    looking.clock.advance(2.5)
    looking.look_up(job)
    assert [2.5] == looking.telemetry.observations["lookup_seconds"]


def test_the_lease_is_given_back_whatever_happens() -> None:
    """No descriptor of the store's stays open."""
    closed: list[bool] = []

    class ClosingLease:
        def __init__(self, nbytes: int) -> None:
            self.nbytes = nbytes

        def view(self) -> memoryview:
            return memoryview(header_block(REF, TensorSpec("int8", ()), {}))

        def read_into(self, target: memoryview, offset: int = 0) -> int:
            raise StoreFault("unused")

        def close(self) -> None:
            closed.append(True)

    class Leasing(WrappedStore):
        def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
            return ClosingLease(4096)

    assert LookupOutcome.CORRUPT is Looking(Leasing(memory_store())).find()
    assert [True] == closed
