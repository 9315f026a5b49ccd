"""Private mappings: zero-copy, kept for ever, no descriptor, no SIGBUS while they are made."""

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from eccache.adapters.system import files, mapping
from eccache.adapters.system.files import SystemFiles

FILES = SystemFiles()
CONTENT = bytes(range(256)) * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 16 KiB."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def descriptor(path: Path) -> Iterator[int]:
    """The file, open for reading."""
    descriptor = FILES.open(str(path))
    yield descriptor
    FILES.close(descriptor)


def mapped(descriptor: int, nbytes: int = len(CONTENT)) -> memoryview:
    """Map the file."""
    view = FILES.map_private(descriptor, nbytes)
    assert view is not None
    return view


def mappings_of(path: Path) -> int:
    """Return how many mappings of *path* this process has."""
    return Path("/proc/self/maps").read_text().count(str(path))


def test_a_mapping_shows_the_file(descriptor: int) -> None:
    """It is 1-D writable bytes of the length that was asked for, page-aligned or not."""
    for nbytes in (1, 4095, 4096, 4097, len(CONTENT)):
        view = mapped(descriptor, nbytes)
        assert ("B", 1, nbytes, False) == (view.format, view.ndim, view.nbytes, view.readonly)
        assert CONTENT[:nbytes] == bytes(view)
        with pytest.raises(IndexError):
            view[nbytes]


def test_what_is_written_to_a_mapping_is_private(path: Path, descriptor: int) -> None:
    """Neither the file nor another mapping changes."""
    first, second = mapped(descriptor), mapped(descriptor)
    first[:] = bytes(len(CONTENT))
    assert CONTENT == bytes(second) == path.read_bytes()


def test_a_mapping_lives_as_long_as_something_refers_to_it(path: Path, descriptor: int) -> None:
    """Slices, arrays and tensors keep it; with the last of them it goes."""
    view = mapped(descriptor)
    array = np.frombuffer(view, np.uint8)
    tensor = torch.frombuffer(view[100:], dtype=torch.uint8)
    del view
    gc.collect()
    assert 1 == mappings_of(path)
    assert CONTENT == array.tobytes()
    del array
    gc.collect()
    assert CONTENT[100] == int(tensor[0])
    assert 1 == mappings_of(path)
    del tensor
    gc.collect()
    assert 0 == mappings_of(path)


def test_a_mapping_needs_no_descriptor(path: Path) -> None:
    """Two thousand held mappings leave as many files open as before."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    views = []
    for _ in range(2000):
        descriptor = FILES.open(str(path))
        views.append(mapped(descriptor))
        FILES.close(descriptor)
    assert before == len(list(Path("/proc/self/fd").iterdir()))
    assert all(CONTENT == bytes(view) for view in views[::500])


def test_a_mapping_outlives_the_file(path: Path, descriptor: int) -> None:
    """An unlinked file's bytes stay for whoever has mapped them."""
    view = mapped(descriptor)
    path.unlink()
    assert CONTENT == bytes(view)


def test_a_file_that_became_shorter_is_an_error_not_a_signal(path: Path, descriptor: int) -> None:
    """Touching a page beyond the end would end the process; populating it is refused."""
    os.truncate(path, 4096)
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
        FILES.map_private(descriptor, len(CONTENT))
    assert errno.EFAULT == caught.value.errno
    assert 0 == mappings_of(path)


def test_a_large_file_is_read_ahead_as_a_whole(
    path: Path, descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold entry comes in at the device's speed; without such advice it comes in all the same."""
    advised: list[tuple[int, ...]] = []

    def advise(*arguments: int) -> None:
        advised.append(arguments)
        raise OSError(errno.ENOSYS, "no advice")

    monkeypatch.setattr(os, "posix_fadvise", advise)
    mapped(descriptor)
    assert [] == advised
    os.truncate(path, 1 << 20)
    assert CONTENT == bytes(mapped(descriptor, 1 << 20)[: len(CONTENT)])
    assert [(descriptor, 0, 1 << 20, os.POSIX_FADV_WILLNEED)] == advised


def test_what_cannot_be_mapped_is_an_error(tmp_path: Path) -> None:
    """A directory, for instance."""
    descriptor = FILES.open(str(tmp_path))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its errno is compared
        FILES.map_private(descriptor, 4096)
    assert errno.ENODEV == caught.value.errno
    FILES.close(descriptor)


def test_only_what_is_cached_is_mapped_where_nobody_may_wait(path: Path, descriptor: int) -> None:
    """A hole that nobody has read is in no memory; asking does not bring it there."""
    assert CONTENT == bytes(FILES.map_private(descriptor, len(CONTENT), only_cached=True) or b"")
    os.truncate(path, len(CONTENT) + (1 << 16))
    for _ in range(2):
        assert FILES.map_private(descriptor, len(CONTENT) + (1 << 16), only_cached=True) is None
    assert 0 == mappings_of(path)
    mapped(descriptor, len(CONTENT) + (1 << 16))
    assert FILES.map_private(descriptor, len(CONTENT) + (1 << 16), only_cached=True)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_system_that_cannot_populate_maps_nothing(
    path: Path, descriptor: int, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    """Linux before 5.14 does not know the advice, other systems have none: the caller copies."""
    monkeypatch.setattr(mapping, "_POPULATE_READ", 12345)
    monkeypatch.setattr(sys, "platform", platform)
    assert FILES.map_private(descriptor, len(CONTENT)) is None
    gc.collect()
    assert 0 == mappings_of(path)


def test_system_calls_release_the_gil() -> None:
    """A library loaded as Python's own API would hold it during every call."""
    holds_the_gil = 4  # ctypes' FUNCFLAG_PYTHONAPI
    assert ctypes.PyDLL(None)._func_flags_ & holds_the_gil
    for library in (mapping._libc, files._libc):  # noqa: SLF001
        assert not library._func_flags_ & holds_the_gil
