"""Opening a root: made if missing, refused if it is not ours, usable where it can be."""

import errno
import os
import shutil
import stat
from pathlib import Path

import pytest

from eccache.adapters.disk import DiskStore
from eccache.adapters.disk.layout import Layout
from eccache.domain.errors import ConfigError, StoreFault
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome
from eccache.testing.file_faults import failing
from eccache.testing.frames import NAMESPACE, ref_of
from eccache.testing.telemetry import RecordingTelemetry
from tests.unit.disk.places import (
    LAYOUT,
    ROOT,
    SimulatedPlace,
    disk_store,
    policy_of,
    put,
    read,
)

REF = ref_of("an input")


def modes_under(root: Path) -> tuple[set[int], set[int]]:
    """Return the permission bits of all files and of all directories under and of *root*."""
    paths = [root, *root.rglob("*")]
    return (
        {stat.S_IMODE(path.lstat().st_mode) for path in paths if path.is_file()},
        {stat.S_IMODE(path.lstat().st_mode) for path in paths if path.is_dir()},
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_stored_is_private(tmp_path: Path, umask: int) -> None:
    """Files are 0600 and directories 0700, whatever the umask."""
    before = os.umask(umask)
    try:
        store = disk_store(tmp_path / "deep" / "root", namespace=NAMESPACE)
        put(store, REF)
    finally:
        os.umask(before)
    assert ({0o600}, {0o700}) == modes_under(tmp_path / "deep" / "root")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_shared_group_can_read_and_write_everything(tmp_path: Path, umask: int) -> None:
    """With `shared_group` files are 0660 and directories 2770, whatever the umask."""
    before = os.umask(umask)
    try:
        policy = policy_of(shared_group=True)
        store = disk_store(tmp_path / "root", policy=policy, namespace=NAMESPACE)
        put(store, REF)
    finally:
        os.umask(before)
    assert ({0o660}, {0o2770}) == modes_under(tmp_path / "root")


@pytest.mark.parametrize("path", [ROOT, LAYOUT.version])
def test_somebody_elses_root_is_refused(path: str) -> None:
    """A root, or its inside, that belongs to another user stops the start, with the remedy."""
    place = SimulatedPlace()
    place.store()
    place.disk.find(path).user = 4711
    with pytest.raises(ConfigError, match=r"belongs to user 4711.*shared_group"):
        place.store()


def test_somebody_elses_root_is_shared_where_that_is_wanted() -> None:
    """With `shared_group` pods under random uids share a root."""
    place = SimulatedPlace(policy=policy_of(shared_group=True))
    place.store()
    place.disk.find(ROOT).user = 4711
    assert PutOutcome.STORED is put(place.store(), REF)


def test_a_world_writable_root_is_warned_of() -> None:
    """Whoever can write to the root can change what is served."""
    place = SimulatedPlace()
    place.store()
    assert [] == place.telemetry.events
    place.disk.find(ROOT).mode = stat.S_IFDIR | 0o777
    place.store()
    (event,) = place.telemetry.named("store.root.world_writable")
    assert f"chmod o-w {ROOT}" in str(event.fields["remedy"])


def test_a_link_to_a_root_is_followed_only_where_it_may_be(tmp_path: Path) -> None:
    """An operator's link is fine; in a folder where others can make links it is refused."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "root").symlink_to(tmp_path / "elsewhere")
    assert PutOutcome.STORED is put(disk_store(tmp_path / "root"), REF)
    with pytest.raises(ConfigError, match="no directory"):
        disk_store(tmp_path / "root", policy=policy_of(follow_root_link=False))


@pytest.mark.parametrize("name", ["root", "root/v1", "root/below"])
def test_a_file_in_place_of_the_root_is_refused(tmp_path: Path, name: str) -> None:
    """What can only be mended by an operator stops the start."""
    root = tmp_path / name.removesuffix("/v1")
    path = tmp_path / name.removesuffix("/below")
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_text("a file")
    with pytest.raises(ConfigError, match="Remedy"):
        disk_store(root)


def test_a_root_that_may_not_be_made_is_refused() -> None:
    """Missing permission is wrong configuration, and says so."""
    place = SimulatedPlace()
    with pytest.raises(ConfigError, match=r"can't be made.*Remedy"):
        place.store(failing(place.process(), "make_directory", number=errno.EACCES))


@pytest.mark.parametrize("name", ["x" * 300, ("x" * 200 + "/") * 25], ids=["name", "path"])
def test_a_root_that_no_system_can_make_is_refused(tmp_path: Path, name: str) -> None:
    """A name or a path that is too long would be nothing but misses for ever."""
    with pytest.raises(ConfigError, match=r"can't be made: File name too long.*Remedy"):
        disk_store(tmp_path / name)
    for made in tmp_path.iterdir():  # by descriptors; whoever goes by paths can't remove it
        shutil.rmtree(made)


def test_a_root_may_be_as_deep_as_paths_go() -> None:
    """However many folders have to be made for it."""
    place = SimulatedPlace()
    store = DiskStore(
        "/x" * 2000,
        policy=place.policy,
        files=place.process(),
        clock=place.clock,
        telemetry=place.telemetry,
    )
    assert PutOutcome.STORED is put(store, REF)


WRITING = (
    *("create", "make_directory", "rename", "unlink", "write", "allocate"),
    *("set_modified", "set_mode"),
)


def test_a_read_only_root_serves_hits() -> None:
    """A consumer may mount the root read-only: hits as ever, and puts are faults that say why."""
    place = SimulatedPlace()
    put(place.store(), REF)
    place.clock.advance(1e6)
    store = place.store(failing(place.process(), *WRITING, number=errno.EROFS))
    assert read(store, REF) is not None
    assert store.contains(REF)
    assert 1 == store.stats().entries
    with pytest.raises(StoreFault, match="hits are served all the same"):
        put(store, ref_of("another"))


def test_a_missing_root_on_a_read_only_mount_is_misses_until_it_is_made() -> None:
    """A consumer may start before its producer."""
    place = SimulatedPlace()
    store = place.store(failing(place.process(), *WRITING, number=errno.EROFS))
    assert [True] == [bool(place.telemetry.named("store.root.not_writable"))]
    assert read(store, REF) is None
    put(place.store(), REF)
    assert read(store, REF) is not None


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_root_that_fails_when_opened_costs_misses(number: int) -> None:
    """What may pass by itself stops no start."""
    place = SimulatedPlace()
    files = failing(place.process(), "make_directory", "status", "scan", number=number)
    store = place.store(files)
    assert read(store, REF) is None
    assert {"store.root.not_writable", "store.root.unreadable"} <= {
        event.name for event in place.telemetry.events
    }


def test_a_root_deleted_while_open_works_again(tmp_path: Path) -> None:
    """Reads miss, and the next put makes the root anew."""
    store = disk_store(tmp_path / "root", namespace=NAMESPACE)
    put(store, REF)
    (tmp_path / "root").rename(tmp_path / "trash")
    assert read(store, REF) is None
    assert not store.contains(REF)
    assert (0, []) == (store.stats().entries, list(store.entries()))
    assert PutOutcome.STORED is put(store, REF)
    assert read(store, REF) is not None
    assert (1, 8192) == (store.stats().entries, store.stats().nbytes)


def test_a_root_replaced_while_open_is_used_at_once(tmp_path: Path) -> None:
    """What another root has is served, counted and kept within the cap."""
    store = disk_store(tmp_path / "root", policy=policy_of(4 * 8192))
    put(store, REF)
    other = ref_of("another")
    for number in range(3):
        put(disk_store(tmp_path / "new"), ref_of(f"input {number}"))
    put(disk_store(tmp_path / "new"), other)
    (tmp_path / "root").rename(tmp_path / "trash")
    (tmp_path / "new").rename(tmp_path / "root")
    assert read(store, REF) is None
    assert read(store, other) is not None
    assert (4, 4 * 8192) == (store.stats().entries, store.stats().nbytes)
    assert PutOutcome.STORED is put(store, REF)
    assert (4, 1) == (store.stats().entries, store.stats().evictions)


def test_nothing_is_made_where_the_roots_folder_is_gone(tmp_path: Path) -> None:
    """If what the root was in is gone, so is probably a mount; another file system is not filled."""
    (tmp_path / "mount").mkdir()
    store = disk_store(tmp_path / "mount" / "root")
    (tmp_path / "mount").rename(tmp_path / "trash")
    with pytest.raises(StoreFault, match="put failed"):
        put(store, REF)
    assert not (tmp_path / "mount").exists()


def test_a_root_that_links_to_nowhere_costs_misses(tmp_path: Path) -> None:
    """A link to a disk that is not mounted: nothing is made there, puts are faults, and it is said."""
    (tmp_path / "root").symlink_to(tmp_path / "mount" / "ec")
    telemetry = RecordingTelemetry()
    store = disk_store(tmp_path / "root", telemetry=telemetry)
    assert telemetry.named("store.root.not_writable")
    assert (False, None) == (store.contains(REF), read(store, REF))
    with pytest.raises(StoreFault, match="put failed: No such file"):
        put(store, REF)
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "ec").mkdir(mode=0o700)
    assert PutOutcome.STORED is put(store, REF)


def test_a_namespace_is_described_in_words(tmp_path: Path) -> None:
    """`namespace.json` says what the entries beside it were computed with; once, and again if lost."""
    namespace = Namespace.from_ingredients({"model": "a/b", "revision": "ä"})
    store = disk_store(tmp_path / "root", namespace=namespace)
    path = Path(Layout(str(tmp_path / "root")).namespace(namespace.fingerprint)) / "namespace.json"
    put(store, REF)
    assert not path.exists()
    for number in range(2):
        put(store, ref_of(f"input {number}", namespace=namespace))
        assert '"revision": "\\u00e4"' in path.read_text()
        path.unlink()


def test_opening_scans_nothing() -> None:
    """However much is stored, opening takes the same few operations, and so do look-ups."""
    place = SimulatedPlace()
    for number in range(50):
        put(place.store(), ref_of(f"input {number}"))
    process = place.process()
    store = place.store(process)
    assert "scan" not in process.operations
    assert len(process.operations) < 10
    process.operations.clear()
    store.contains(ref_of("input 1"))
    assert ["exists"] == process.operations
    lease = store.get(ref_of("input 1"))
    assert lease is not None
    lease.close()
    assert ["exists", "open", "descriptor_status", "close"] == process.operations


def test_only_reads_make_no_directories(tmp_path: Path) -> None:
    """Queries leave a fresh root as they found it."""
    store = disk_store(tmp_path / "root")
    before = sorted(tmp_path.rglob("*"))
    store.contains(REF)
    store.get(REF)
    store.stats()
    list(store.entries())
    assert before == sorted(tmp_path.rglob("*"))
    store.close()
