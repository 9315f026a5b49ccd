"""What every kind of shared copy does: the port's docstrings, sentence by sentence, as tests.

For shared copies of your own:

```python
class TestMyCopies(SharedCopiesConformance):
    def make_copies(self) -> SharedCopies:
        return MyCopies()
```
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eccache.domain.errors import StoreFault
from eccache.ports.shared_copy import SharedCopies, SharedCopy

PAGE_NBYTES = mmap.PAGESIZE
CONTENT = bytes(range(256)) * 64


class SharedCopiesConformance:
    """Subclass it, say how copies are made, and run it."""

    def make_copies(self) -> SharedCopies:
        """Return what makes and maps copies."""
        raise NotImplementedError

    @pytest.fixture
    def copies(self) -> SharedCopies:
        """What makes and maps copies."""
        return self.make_copies()

    @pytest.fixture
    def copy(self, copies: SharedCopies) -> Iterator[SharedCopy]:
        """A copy of the content's length, not yet filled."""
        copy = copies.create(len(CONTENT))
        yield copy
        copy.close()

    def test_what_was_written_is_what_is_mapped(
        self, copies: SharedCopies, copy: SharedCopy
    ) -> None:
        """A copy written in pieces, in any order, is mapped as it was written."""
        middle = len(CONTENT) // 2 + 7
        copy.write(memoryview(CONTENT)[middle:], middle)
        copy.write(memoryview(CONTENT)[:middle], 0)
        copy.seal()
        mapped = copies.map(copy.pid, copy.fd, copy.nbytes)
        assert CONTENT == bytes(mapped)
        assert (1, "B") == (mapped.ndim, mapped.format)

    def test_what_was_never_written_is_zero(self, copies: SharedCopies, copy: SharedCopy) -> None:
        """A copy has its whole length from the start."""
        copy.write(memoryview(b"end"), len(CONTENT) - 3)
        copy.seal()
        expected = bytes(len(CONTENT) - 3) + b"end"
        assert expected == bytes(copies.map(copy.pid, copy.fd, copy.nbytes))

    def test_a_copy_knows_its_length_and_its_process(self, copy: SharedCopy) -> None:
        """What a worker needs in order to find it."""
        assert (len(CONTENT), os.getpid()) == (copy.nbytes, copy.pid)

    def test_a_sealed_copy_can_not_be_written(self, copies: SharedCopies, copy: SharedCopy) -> None:
        """After sealing nobody changes a byte, its maker included."""
        copy.write(memoryview(CONTENT), 0)
        copy.seal()
        with pytest.raises(StoreFault):
            copy.write(memoryview(b"changed"), 0)
        assert CONTENT == bytes(copies.map(copy.pid, copy.fd, copy.nbytes))

    def test_a_copy_that_is_not_sealed_is_not_mapped(
        self, copies: SharedCopies, copy: SharedCopy
    ) -> None:
        """What may still change, or shrink under its reader, is refused."""
        copy.write(memoryview(CONTENT), 0)
        with pytest.raises(StoreFault):
            copies.map(copy.pid, copy.fd, copy.nbytes)

    @pytest.mark.parametrize("difference", [-PAGE_NBYTES, -1, 1, PAGE_NBYTES])
    def test_a_copy_of_another_length_is_not_mapped(
        self, copies: SharedCopies, copy: SharedCopy, difference: int
    ) -> None:
        """A descriptor that means something else by now is noticed."""
        copy.seal()
        with pytest.raises(StoreFault):
            copies.map(copy.pid, copy.fd, copy.nbytes + difference)

    def test_a_mapping_is_private(self, copies: SharedCopies, copy: SharedCopy) -> None:
        """What one rank writes into its tensor, another does not see."""
        copy.write(memoryview(CONTENT), 0)
        copy.seal()
        first = copies.map(copy.pid, copy.fd, copy.nbytes)
        first[:4] = b"mine"
        assert CONTENT == bytes(copies.map(copy.pid, copy.fd, copy.nbytes))

    def test_a_mapping_outlives_the_copy(self, copies: SharedCopies, copy: SharedCopy) -> None:
        """A tensor stays valid after every rank has acknowledged."""
        copy.write(memoryview(CONTENT), 0)
        copy.seal()
        part = copies.map(copy.pid, copy.fd, copy.nbytes)[1:]
        copy.close()
        assert CONTENT[1:] == bytes(part)

    def test_a_closed_copy_can_not_be_reached(self, copies: SharedCopies, copy: SharedCopy) -> None:
        """A worker that comes too late hears so."""
        copy.seal()
        fd = copy.fd
        copy.close()
        with pytest.raises(StoreFault):
            copies.map(copy.pid, fd, copy.nbytes)

    def test_close_may_be_called_by_many_threads_and_again(self, copies: SharedCopies) -> None:
        """A descriptor is closed once, though its number may mean something else by then."""
        copy = copies.create(PAGE_NBYTES)
        threads = [threading.Thread(target=copy.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        other = copies.create(PAGE_NBYTES)
        copy.close()
        other.write(memoryview(b"still open"), 0)
        other.close()

    def test_a_copy_of_a_file_that_shrinks_meanwhile_fails(
        self, copies: SharedCopies, tmp_path: Path
    ) -> None:
        """A mapped source that lost its pages is a fault and not a signal that ends the process."""
        path = tmp_path / "source"
        path.write_bytes(bytes(4 * PAGE_NBYTES))
        with (
            path.open("r+b") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as whole,
        ):
            source = memoryview(whole)
            file.truncate(PAGE_NBYTES)
            copy = copies.create(len(whole))
            with pytest.raises(StoreFault):
                copy.write(source, 0)
            copy.close()
            source.release()

    def test_an_unknown_process_can_not_be_reached(self, copies: SharedCopies) -> None:
        """A scheduler that is gone, or lives in another pid namespace, is a fault."""
        with pytest.raises(StoreFault):
            copies.map(1 << 30, 3, PAGE_NBYTES)
