"""The store without a disk: as large as there is room for, and this user's own."""

import errno

import pytest

from eccache.adapters.disk import DiskStore, open_shared_memory_store
from eccache.domain.errors import ConfigError
from eccache.domain.outcomes import PutOutcome
from eccache.ports.file_operations import FileOperations
from eccache.testing.file_faults import failing
from eccache.testing.frames import ref_of
from tests.unit.disk.places import ENTRY_NBYTES, SimulatedPlace, policy_of, put, read

FOLDER = "/memory"
ROOTS = (f"{FOLDER}/eccache-1000", "/temporary/eccache-1000")
"""The folder of the tests' user in shared memory, and what is taken where there is none."""
REF = ref_of("an input")


@pytest.fixture
def place() -> SimulatedPlace:
    """A machine with a folder of shared memory for 1,000 entries."""
    place = SimulatedPlace(policy=policy_of(100 * ENTRY_NBYTES))
    place.disk.capacity_nbytes = 1000 * ENTRY_NBYTES
    for folder in (FOLDER, "/temporary"):
        place.process().make_directory(folder, 0o1777)
    return place


def opened(
    place: SimulatedPlace,
    available_nbytes: int | None = None,
    files: FileOperations | None = None,
) -> DiskStore:
    """Open the store."""
    return open_shared_memory_store(
        ROOTS,
        policy=place.policy,
        files=files or place.process(),
        clock=place.clock,
        telemetry=place.telemetry,
        available_nbytes=available_nbytes,
    )


def test_where_there_is_room_the_cap_is_what_was_asked_for(place: SimulatedPlace) -> None:
    """Nothing is said, and processes share what is stored."""
    assert 100 * ENTRY_NBYTES == opened(place).stats().capacity_nbytes
    assert PutOutcome.STORED is put(opened(place), REF)
    assert read(opened(place), REF) is not None
    assert [] == place.telemetry.events


@pytest.mark.parametrize("scarce", ["tmpfs", "memory"])
def test_where_there_is_less_room_the_cap_is_what_there_is(
    place: SimulatedPlace, scarce: str
) -> None:
    """A small tmpfs, or little memory, makes a small store and a warning that says what to change."""
    if scarce == "tmpfs":
        place.disk.capacity_nbytes = 50 * ENTRY_NBYTES
    store = opened(place, 50 * ENTRY_NBYTES if scarce == "memory" else None)
    assert 45 * ENTRY_NBYTES == store.stats().capacity_nbytes
    (event,) = place.telemetry.named("store.shared_memory.small")
    assert "--shm-size" in str(event.fields["remedy"])
    for number in range(60):
        assert PutOutcome.STORED is put(store, ref_of(f"input {number}"))
    assert place.nbytes_in("/memory") <= 45 * ENTRY_NBYTES


def test_what_is_stored_already_is_room(place: SimulatedPlace) -> None:
    """A restart does not halve the store because the store itself fills the memory."""
    place.disk.capacity_nbytes = 150 * ENTRY_NBYTES
    store = opened(place)
    for number in range(100):
        put(store, ref_of(f"input {number}"))
    assert 100 * ENTRY_NBYTES == opened(place).stats().capacity_nbytes


def test_no_room_at_all_is_a_store_that_rejects(place: SimulatedPlace) -> None:
    """The server runs, everything misses, and the warning says why."""
    store = opened(place, files=failing(place.process(), "space", number=errno.EIO))
    assert PutOutcome.REJECTED is put(store, REF)
    assert read(store, REF) is None
    assert 1 == len(place.telemetry.named("store.shared_memory.small"))


def test_without_shared_memory_a_folder_is_used_and_said(place: SimulatedPlace) -> None:
    """A system without /dev/shm keeps entries in files elsewhere."""
    place.process().remove_directory(FOLDER)
    assert PutOutcome.STORED is put(opened(place), REF)
    (event,) = place.telemetry.named("store.shared_memory.missing")
    assert ROOTS[1] == event.fields["used"]


def test_somebody_elses_folder_is_refused(place: SimulatedPlace) -> None:
    """Anybody may make a folder of any name in shared memory; it is used only if it is ours."""
    node = place.disk.make(ROOTS[0], 0o040777)
    node.user = 4711
    with pytest.raises(ConfigError, match="belongs to user 4711"):
        opened(place)


def test_a_planted_link_is_refused(place: SimulatedPlace) -> None:
    """A link to a folder of this user's own would pass the check of the owner."""
    place.disk.make(ROOTS[0], 0o120777)
    with pytest.raises(ConfigError, match="no directory"):
        opened(place)
