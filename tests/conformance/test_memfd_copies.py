"""Memory files do what shared copies do, also for another process."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eccache.adapters.memfd import MemfdCopies
from eccache.adapters.memfd import copies as memfd
from eccache.adapters.system.mapping import map_private
from eccache.domain.errors import StoreFault
from eccache.testing.shared_copies_conformance import CONTENT, SharedCopiesConformance

MAPS_AND_PRINTS = """
import sys
from eccache.adapters.memfd import MemfdCopies
from eccache.adapters.system.mapping import map_private
pid, fd, nbytes = map(int, sys.argv[1:])
sys.stdout.buffer.write(MemfdCopies(map_private).map(pid, fd, nbytes))
"""


class TestMemfdCopies(SharedCopiesConformance):
    """Conformance of memory files."""

    def make_copies(self) -> MemfdCopies:
        """Return memory files, mapped with every page present."""
        return MemfdCopies(map_private)


class TestMemfdCopiesOnAnOldKernel(SharedCopiesConformance):
    """Conformance where a mapping can't be populated, and the bytes are read instead."""

    def make_copies(self) -> MemfdCopies:
        """Return memory files on a system that can't populate."""
        return MemfdCopies(lambda _descriptor, _nbytes: None)


@contextmanager
def open_files_limited_to(count: int) -> Iterator[None]:
    """Let this process open no more than *count* files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors() -> int:
    """Return the number of descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_another_process_maps_the_very_bytes() -> None:
    """A worker reaches a copy of its scheduler by process and descriptor alone."""
    copy = MemfdCopies(map_private).create(len(CONTENT))
    copy.write(memoryview(CONTENT), 0)
    copy.seal()
    arguments = [str(copy.pid), str(copy.fd), str(copy.nbytes)]
    result = subprocess.run(
        [sys.executable, "-c", MAPS_AND_PRINTS, *arguments], capture_output=True, check=True
    )
    copy.close()
    assert CONTENT == result.stdout


def test_a_mapping_needs_no_descriptor() -> None:
    """A thousand held tensors take no descriptor of a worker."""
    copies = MemfdCopies(map_private)
    copy = copies.create(len(CONTENT))
    copy.seal()
    before = descriptors()
    held = [copies.map(copy.pid, copy.fd, copy.nbytes) for _ in range(50)]
    assert before == descriptors()
    assert 50 == len(held)
    copy.close()
    assert before - 1 == descriptors()


def test_no_descriptor_left_is_a_fault_that_names_the_limit() -> None:
    """A host with a low limit of open files serves misses and says what to raise."""
    with open_files_limited_to(3), pytest.raises(StoreFault, match="ulimit -n"):
        MemfdCopies(map_private).create(1)


def test_a_copy_that_gets_no_length_leaves_no_descriptor() -> None:
    """A fault halfway leaves nothing behind."""
    before = descriptors()
    with pytest.raises(StoreFault, match="can't have"):
        MemfdCopies(map_private).create(-1)
    assert before == descriptors()


def test_a_copy_that_can_not_be_sealed_is_a_fault() -> None:
    """A copy that someone could still change is never taken for sealed."""
    copy = MemfdCopies(map_private).create(1)
    copy.seal()
    with pytest.raises(StoreFault, match="sealed"):
        copy.seal()
    copy.close()


def test_a_mapping_that_fails_is_a_fault() -> None:
    """What the system refuses costs a promise, and is told in the port's terms."""

    def refused(_descriptor: int, _nbytes: int) -> memoryview | None:
        raise OSError(12, "no memory")

    copy = MemfdCopies(map_private).create(1)
    copy.seal()
    with pytest.raises(StoreFault, match="no memory"):
        MemfdCopies(refused).map(copy.pid, copy.fd, 1)
    copy.close()


@pytest.mark.parametrize(("number", "expected"), [(22, "made"), (24, "refused")])
def test_a_kernel_without_executable_seals_will_do(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: str
) -> None:
    """Before Linux 6.3 the flag is unknown and left out; any other error is one."""
    create = os.memfd_create

    def old(name: str, flags: int) -> int:
        if flags & memfd.NO_EXECUTION:
            raise OSError(number, os.strerror(number))
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", old)
    try:
        MemfdCopies(map_private).create(1).close()
        outcome = "made"
    except StoreFault:
        outcome = "refused"
    assert expected == outcome
