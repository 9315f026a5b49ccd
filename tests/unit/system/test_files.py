"""The operating system behind the seam: what the store relies on, on the real thing."""

import ctypes
import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from eccache.adapters.system import files as files_module
from eccache.adapters.system.files import SystemFiles

FILES = SystemFiles()


def test_allocation_reserves_before_a_byte_is_written(tmp_path: Path) -> None:
    """The file has its length and its blocks."""
    descriptor = FILES.create(str(tmp_path / "file"), 0o600)
    assert FILES.allocate(descriptor, 1 << 20)
    status = FILES.descriptor_status(descriptor)
    assert 1 << 20 == status.st_size
    assert status.st_blocks * 512 >= 1 << 20
    FILES.close(descriptor)


class Libc:
    """A C library whose `fallocate` fails with one errno after the other; 0 is success."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)

    def fallocate(self, *_: int) -> int:
        """Answer."""
        return -1 if self.answers[0] else 0


def allocate(monkeypatch: pytest.MonkeyPatch, *answers: int) -> bool:
    """Allocate with a C library that gives *answers*."""
    libc = Libc(*answers)
    monkeypatch.setattr(files_module, "_libc", libc)
    monkeypatch.setattr(ctypes, "get_errno", lambda: libc.answers.pop(0))
    return FILES.allocate(3, 4096)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([errno.EOPNOTSUPP], False),
        ([errno.ENOSYS], False),
        ([errno.EINTR, errno.EINTR, 0], True),
    ],
)
def test_allocation_that_is_interrupted_or_unknown(
    monkeypatch: pytest.MonkeyPatch, answers: list[int], *, expected: bool
) -> None:
    """An interrupted call is repeated; a file system that can't says so."""
    assert expected == allocate(monkeypatch, *answers)


def test_allocation_on_a_full_file_system_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC is told before a byte is written."""
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
        allocate(monkeypatch, errno.ENOSPC)
    assert errno.ENOSPC == caught.value.errno


def test_allocation_on_another_system_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """There, files grow while they are written."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not FILES.allocate(-1, 4096)


def test_a_lock_is_the_open_files_and_goes_with_it(tmp_path: Path) -> None:
    """A second open file is denied it, in the same process too, until the first is closed."""
    path = str(tmp_path / "file")
    first = FILES.create(path, 0o600)
    second = FILES.open(path)
    assert FILES.lock(first)
    assert not FILES.lock(second)
    FILES.close(first)
    assert FILES.lock(second)
    FILES.close(second)


def test_a_lock_that_cannot_be_had_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without locks is no reason to think that another has it."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="no locks"):
        FILES.lock(3)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Not when it is opened, made, looked at or scanned."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory link").symlink_to(tmp_path / "directory")
    link = str(tmp_path / "link")
    assert FILES.status(link).st_size == len(str(tmp_path / "target"))
    for attempt in (FILES.open, lambda path: FILES.create(path, 0o600)):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
            attempt(link)
        assert caught.value.errno in (errno.ELOOP, errno.EEXIST)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
        FILES.scan(str(tmp_path / "directory link"))
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert not (tmp_path / "target").exists()


def test_opening_a_fifo_does_not_wait(tmp_path: Path) -> None:
    """Nobody has its other end open."""
    os.mkfifo(tmp_path / "fifo")
    FILES.close(FILES.open(str(tmp_path / "fifo")))


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    """A program that the host starts holds no file of the cache open."""
    descriptor = FILES.create(str(tmp_path / "file"), 0o600)
    assert not os.get_inheritable(descriptor)
    FILES.close(descriptor)


def test_what_vanishes_during_a_scan_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan beside evictions of other processes is no error."""
    (tmp_path / "stays").touch()
    scandir = os.scandir

    class Vanishing:
        name = "gone"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    class Entries:
        def __init__(self, descriptor: int) -> None:
            self.entries = [Vanishing(), *scandir(descriptor)]

        def __enter__(self) -> list[object]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Entries)
    assert ["stays"] == [name for name, _ in FILES.scan(str(tmp_path))]


def test_space_is_what_this_user_may_write(tmp_path: Path) -> None:
    """Free is not more than all, and neither is nothing."""
    space = FILES.space(str(tmp_path))
    assert 0 < space.free_nbytes <= space.total_nbytes


def test_synchronising_works_on_files_and_directories(tmp_path: Path) -> None:
    """Where a file system can't sync a directory (some FUSE ones), that is no fault."""
    descriptor = FILES.create(str(tmp_path / "file"), 0o600)
    FILES.sync(descriptor)
    FILES.close(descriptor)
    FILES.sync_directory(str(tmp_path))


@pytest.mark.parametrize(("number", "raises"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_directory_that_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, *, raises: bool
) -> None:
    """That it can't be is passed over, that it failed is not."""

    def refuse(_: int) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "fsync", refuse)
    if raises:
        with pytest.raises(OSError, match="no"):
            FILES.sync_directory(str(tmp_path))
    else:
        FILES.sync_directory(str(tmp_path))


def test_a_boot_has_a_name() -> None:
    """The same one for as long as the machine runs."""
    assert "" != FILES.boot() == FILES.boot()


def test_a_system_without_boot_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as if the machine never restarted."""
    monkeypatch.setattr(files_module, "_BOOT_ID", "/not/there")
    assert "" == FILES.boot()
