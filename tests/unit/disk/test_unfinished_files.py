"""Unfinished files: made under names of their own, collected when nobody writes them any more."""

import contextlib
import errno

import pytest

from eccache.adapters.disk.layout import parent
from eccache.domain.errors import StoreFault
from eccache.domain.outcomes import PutOutcome
from eccache.testing.file_faults import failing, featureless, intercepted
from eccache.testing.frames import frame_bytes, frame_of, ref_of
from eccache.testing.simulated_process import ProcessDied, SimulatedProcess
from tests.unit.disk.places import LAYOUT, SimulatedPlace, put, read

REF = ref_of("an input")


def dead_writer(place: SimulatedPlace) -> None:
    """Let a process die while it writes."""
    put(place.store(), ref_of("something"))
    process = place.process()
    store = place.store(process)
    process.operations.clear()
    process.write = lambda *_: die(process)  # type: ignore[method-assign]
    with pytest.raises(ProcessDied):
        store.put(REF, frame_of(REF))
    assert 1 == len(place.unfinished())


def die(process: SimulatedProcess) -> int:
    """End a process."""
    process.die()
    raise ProcessDied


def test_what_a_dead_writer_left_is_collected_at_once() -> None:
    """The lock went with the process; no age and no process id is needed to tell."""
    place = SimulatedPlace()
    dead_writer(place)
    assert 1 == place.parts().temporaries.collect()
    assert [] == place.unfinished()


def test_what_is_being_written_is_left_alone() -> None:
    """A file whose writer lives has a lock, and stays however often one collects."""
    place = SimulatedPlace()
    with place.parts().temporaries.created():
        assert 0 == place.parts().temporaries.collect()
        assert 1 == len(place.unfinished())
    assert 1 == place.parts().temporaries.collect()


def test_without_locks_age_decides() -> None:
    """Where a lock is granted to everybody it proves nothing: only what is old goes."""
    place = SimulatedPlace()
    dead_writer(place)
    parts = place.parts(featureless(place.process()))
    assert 0 == parts.temporaries.collect()
    place.clock.advance(3601)
    assert 1 == parts.temporaries.collect()


@pytest.mark.parametrize("seconds", [-3601, 3601])
def test_old_files_go_without_being_asked(seconds: float) -> None:
    """The next put of anybody takes away what is older than an hour, or as far in the future."""
    place = SimulatedPlace()
    dead_writer(place)
    put(place.store(), ref_of("another"))
    assert 1 == len(place.unfinished())
    place.clock.jump(seconds)
    put(place.store(), ref_of("a third"))
    assert [] == place.unfinished()


@pytest.mark.parametrize("times", [1, 2])
def test_a_writer_whose_file_is_taken_away_writes_again(times: int) -> None:
    """Should a file with a writer be collected all the same, the put succeeds."""
    place = SimulatedPlace()
    process = place.process()
    thief = place.process()
    taken: list[str] = []

    def take(operation: str) -> None:
        if operation == "rename" and len(taken) < times and place.unfinished():
            taken.append(place.unfinished()[0])
            thief.unlink(f"{LAYOUT.temporary}/{taken[-1]}")

    put(place.store(), ref_of("something"))
    assert PutOutcome.STORED is put(place.store(intercepted(process, take)), REF)
    assert times == len(taken)
    assert read(place.store(), REF) is not None


def test_a_writer_whose_file_is_always_taken_away_gives_up() -> None:
    """It ends with a fault, and nothing is left behind."""
    place = SimulatedPlace()
    thief = place.process()

    def take(operation: str) -> None:
        if operation == "rename":
            for name in place.unfinished():
                thief.unlink(f"{LAYOUT.temporary}/{name}")

    put(place.store(), ref_of("something"))
    with pytest.raises(StoreFault, match="put failed"):
        put(place.store(intercepted(place.process(), take)), REF)
    assert [] == place.unfinished()


@pytest.mark.parametrize("times", [1, 3])
def test_a_file_that_is_taken_away_before_it_is_locked_is_never_written(times: int) -> None:
    """Whoever collects at that very moment costs a new name, not a put and not a second writing."""
    place = SimulatedPlace()
    put(place.store(), ref_of("something"))
    collector = place.parts().temporaries
    process = place.process()
    taken: list[int] = []

    def collect(operation: str) -> None:
        if operation == "lock" and sum(taken) < times:
            taken.append(collector.collect())

    store = place.store(intercepted(process, collect))
    process.operations.clear()
    assert PutOutcome.STORED is put(store, REF)
    assert times == sum(taken)
    assert 1 == process.operations.count("allocate")
    assert read(place.store(), REF) is not None
    assert [] == place.unfinished()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_file_that_cannot_be_looked_at_is_not_left_behind(number: int) -> None:
    """A fault between making a file and writing to it is a fault of the put."""
    place = SimulatedPlace()
    put(place.store(), ref_of("something"))
    process = place.process()
    store = place.store(failing(process, "descriptor_status", number=number))
    with pytest.raises(StoreFault, match="put failed"):
        put(store, REF)
    assert ([], 0) == (place.unfinished(), process.open_descriptors)


def test_a_directory_that_is_collected_before_it_is_used_is_made_again() -> None:
    """`gc` and `purge` remove empty directories at any moment; the entry is written once."""
    place = SimulatedPlace()
    put(place.store(), ref_of("something"))
    collector = place.process()
    process = place.process()
    shard = parent(LAYOUT.entry(REF))
    taken: list[str] = []

    def remove(operation: str) -> None:
        if operation == "rename" and len(taken) < 3:
            with contextlib.suppress(FileNotFoundError):
                collector.remove_directory(shard)
                taken.append(shard)

    store = place.store(intercepted(process, remove))
    process.operations.clear()
    assert PutOutcome.STORED is put(store, REF)
    assert (3, 1) == (len(taken), process.operations.count("allocate"))


def test_writers_of_one_entry_use_files_of_their_own() -> None:
    """What one process has published does not change while another writes the same entry."""
    place = SimulatedPlace()
    other = place.store(featureless(place.process()))  # else locks would keep them apart too
    published = frame_bytes(frame_of(REF, 1))
    seen: list[bytes | None] = []

    def put_meanwhile(operation: str) -> None:
        if operation == "write" and not seen and place.unfinished():
            seen.append(None)
            assert PutOutcome.STORED is put(other, REF, seed=1)
        if seen and operation in ("write", "rename"):
            seen.append(read(other, REF))

    put(place.store(), ref_of("something"))
    store = place.store(intercepted(featureless(place.process()), put_meanwhile))
    assert PutOutcome.STORED is put(store, REF, seed=2)
    assert {published, frame_bytes(frame_of(REF, 2))} == set(seen[1:])
    assert [] == place.unfinished()


def test_a_file_system_without_locks_is_no_obstacle() -> None:
    """Where locking itself fails, files are written all the same, and age decides."""
    place = SimulatedPlace()
    dead_writer(place)
    files = failing(place.process(), "lock", number=errno.ENOLCK)
    assert PutOutcome.STORED is put(place.store(files), REF)
    assert 0 == place.parts(files).temporaries.collect()
    place.clock.advance(3601)
    assert 1 == place.parts(files).temporaries.collect()


def test_a_name_that_is_taken_is_not_used() -> None:
    """Should a random name exist, another one is drawn."""
    place = SimulatedPlace()
    put(place.store(), ref_of("something"))
    process = place.process()
    create, taken = process.create, ["a name"]

    def create_or_refuse(path: str, mode: int) -> int:
        if taken:
            taken.pop()
            raise FileExistsError(errno.EEXIST, "exists", path)
        return create(path, mode)

    process.create = create_or_refuse  # type: ignore[method-assign]
    assert PutOutcome.STORED is put(place.store(process), REF)


def test_what_cannot_be_collected_stays() -> None:
    """A directory that somebody made there, and files that may not be deleted."""
    place = SimulatedPlace()
    dead_writer(place)
    place.process().make_directory(f"{LAYOUT.temporary}/directory", 0o700)
    place.clock.advance(3601)
    refusing = failing(place.process(), "unlink", number=errno.EPERM)
    assert 0 == place.parts(refusing).temporaries.collect()
    assert 1 == place.parts().temporaries.collect()
    assert ["directory"] == place.unfinished()
    assert PutOutcome.STORED is put(place.store(), REF)


def test_what_cannot_be_opened_is_left_to_its_age() -> None:
    """Whether it has a writer can't be told."""
    place = SimulatedPlace()
    dead_writer(place)
    parts = place.parts(failing(place.process(), "open", number=errno.EACCES))
    assert 0 == parts.temporaries.collect()
