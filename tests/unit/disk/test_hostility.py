"""What somebody plants in a root is neither followed nor waited for, and is got over."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from eccache.adapters.disk.layout import Layout
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.frames import frame_bytes, frame_of, ref_of
from tests.unit.disk.places import disk_store, policy_of, put, read

REF = ref_of("an input")
SECRET = frame_bytes(frame_of(REF))
"""A whole entry: whoever follows a link to it would serve it."""


def plant_link(path: Path, secret: Path) -> None:
    """Plant a symbolic link to somebody's file."""
    path.symlink_to(secret)


def plant_dangling_link(path: Path, secret: Path) -> None:
    """Plant a symbolic link to where there is nothing yet."""
    path.symlink_to(secret.parent / "not there")


def plant_fifo(path: Path, secret: Path) -> None:
    """Plant a FIFO, which an innocent `open` would wait for."""
    os.mkfifo(path)


def plant_socket(path: Path, secret: Path) -> None:
    """Plant a socket."""
    here = Path.cwd()
    os.chdir(path.parent)  # A socket's path may not be long.
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name[:90])
            os.rename(path.name[:90], path.name)  # noqa: PTH104 - relative on purpose
    finally:
        os.chdir(here)


def plant_garbage(path: Path, secret: Path) -> None:
    """Plant a file of something else."""
    path.write_bytes(b"\x80\x04\x95 a pickle, perhaps" * 500)


def plant_empty_file(path: Path, secret: Path) -> None:
    """Plant an empty file."""
    path.touch()


PLANTS = [
    plant_link,
    plant_dangling_link,
    plant_fifo,
    plant_socket,
    plant_garbage,
    plant_empty_file,
]
Plant = Callable[[Path, Path], None]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside the root that must stay as it is."""
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    return path


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_at_an_entrys_name_is_a_miss_and_gives_way(
    tmp_path: Path, secret: Path, plant: Plant
) -> None:
    """Nothing is read through it, and the next put takes its place."""
    store = disk_store(tmp_path / "root")
    path = Path(Layout(str(tmp_path / "root")).entry(REF))
    path.parent.mkdir(parents=True)
    plant(path, secret)
    assert read(store, REF) is None
    assert PutOutcome.STORED is put(store, REF)
    assert read(store, REF) is not None
    assert stat.S_ISREG(path.lstat().st_mode)
    assert SECRET == secret.read_bytes()
    assert [secret] == [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_at_the_tables_name_gives_way(tmp_path: Path, secret: Path, plant: Plant) -> None:
    """The accounting is made anew beside it and takes its place."""
    store = disk_store(tmp_path / "root")
    path = Path(Layout(str(tmp_path / "root")).usage)
    plant(path, secret)
    assert 0 == store.stats().entries
    assert PutOutcome.STORED is put(store, REF)
    assert 1 == store.stats().entries
    assert stat.S_ISREG(path.lstat().st_mode)
    assert SECRET == secret.read_bytes()


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_among_unfinished_files_is_stepped_over(
    tmp_path: Path, secret: Path, plant: Plant
) -> None:
    """Names of unfinished files can't be guessed, and what is planted beside them stops nothing."""
    store = disk_store(tmp_path / "root")
    put(store, ref_of("another"))
    plant(Path(Layout(str(tmp_path / "root")).temporary) / "planted", secret)
    assert PutOutcome.STORED is put(store, REF)
    assert SECRET == secret.read_bytes()


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_in_quarantine_is_stepped_over(tmp_path: Path, secret: Path, plant: Plant) -> None:
    """Bounds are kept without a look at what it is."""
    store = disk_store(tmp_path / "root")
    put(store, REF)
    store.remove(REF, RemoveReason.QUARANTINED)
    plant(Path(Layout(str(tmp_path / "root")).quarantine) / "planted", secret)
    put(store, REF)
    assert store.remove(REF, RemoveReason.QUARANTINED)
    assert SECRET == secret.read_bytes()


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_among_entries_is_no_entry(tmp_path: Path, secret: Path, plant: Plant) -> None:
    """What has not our suffix, or is no regular file, is not listed, counted or evicted."""
    store = disk_store(tmp_path / "root", policy=policy_of(4 * 8192))
    put(store, REF)
    shard = Path(Layout(str(tmp_path / "root")).entry(REF)).parent
    plant(shard / "foreign", secret)
    for number in range(12):
        assert PutOutcome.STORED is put(store, ref_of(f"input {number}"))
    assert (shard / "foreign").exists() or (shard / "foreign").is_symlink()
    assert store.stats().entries == len(list(store.entries())) == 4


def test_a_link_in_place_of_a_shard_is_not_listed(tmp_path: Path, secret: Path) -> None:
    """Listing and counting follow no link out of the root."""
    store = disk_store(tmp_path / "root")
    put(store, REF)
    shard = Path(Layout(str(tmp_path / "root")).entry(REF)).parent
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert [] == list(store.entries())


def test_a_directory_at_an_entrys_name_is_a_miss(tmp_path: Path) -> None:
    """A directory can't be replaced by a file: reads miss, and other entries are served."""
    store = disk_store(tmp_path / "root")
    Path(Layout(str(tmp_path / "root")).entry(REF)).mkdir(parents=True)
    assert read(store, REF) is None
    other = ref_of("another")
    put(store, other)
    assert read(store, other) is not None
