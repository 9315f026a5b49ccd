"""How much is stored, over all processes, without a lock and without a scan.

A small file holds one pair of numbers a shard: physical bytes and entries. Whoever puts something into a
shard counts it before it appears there, then rescans that one directory and *sets* its numbers to what was
found. So a process that dies in between leaves one shard overcounted, not the sum wrong for good: the next
change of that shard mends it, and so does the rotation, which rescans one further shard a put. A shard
that is too large to be looked at every time is counted up and down, and set when its turn comes.

What is unfinished or in quarantine is in directories of a few files, which are looked at directly.

The table is read and written with `pread` and `pwrite`, not mapped: a mapped page of a file that someone
truncates ends the process, and one on a medium that hangs holds the GIL.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from eccache.adapters.disk.layout import (
    NOT_THERE,
    SHARDS,
    Layout,
    is_entry,
    namespaces,
    physical_nbytes,
    scan_if_there,
    shards,
)
from eccache.adapters.disk.publisher import Publisher
from eccache.adapters.disk.temporaries import Temporaries
from eccache.adapters.disk.transfer import read_fully, write_fully
from eccache.ports.file_operations import FileOperations

_MAGIC: Final = 0x3145_4741_5355_4345
"""Reads "ECUSAGE1" on a little-endian machine; one written on another is no table here."""
_BOOTS: Final = 5
_HEADER: Final = struct.Struct(f"=QQQ{_BOOTS}Q")  # magic, shards, next of the rotation, boots
_CURSOR: Final = struct.Struct("=Q")
_CURSOR_OFFSET: Final = 16
_HEADER_NBYTES: Final = 64
_PAIR: Final = struct.Struct("=QQ")  # physical bytes, entries
_TABLE_NBYTES: Final = _HEADER_NBYTES + SHARDS * _PAIR.size
_RESCANS: Final = 3
_LARGEST: Final = (1 << 64) - 1
QUICK_ENTRIES: Final = 64
"""Entries that a put can afford to look at for the sake of accounting."""

Found = tuple[str, os.stat_result]


@attrs.frozen(eq=False)
class Usage:
    """The table's numbers at one moment.

    Attributes:
        nbytes: physical bytes by shard.
        entries: number of entries by shard.
        cursor: next shard of the rotation.
        boots: the boots of machines during which it has been right; it may not have survived others.
    """

    nbytes: memoryview
    entries: memoryview
    cursor: int
    boots: tuple[int, ...]


class Accounting:
    """Keeps the table of one root. Any thread may call it.

    Args:
        layout: where it is.
        files: file operations.
        temporaries: unfinished writes, which count too.
        publisher: writes a new table.
    """

    def __init__(
        self, layout: Layout, files: FileOperations, temporaries: Temporaries, publisher: Publisher
    ) -> None:
        self._layout = layout
        self._files = files
        self._temporaries = temporaries
        self._publisher = publisher
        digest = hashlib.sha256(files.boot().encode()).digest()
        self._boot = int.from_bytes(digest[:8], "little")

    def usage(self) -> Usage:
        """Return the table's numbers, making it anew by a full scan where it can't be relied on.

        That is where it is missing, or no table, or where the machine was started since: a power cut may
        have left any part of it as it was.

        Raises:
            OSError: it can't be read or made.
        """
        found = self.peek()
        if found is None or self._boot not in found.boots:
            self.rebuild()
            found = self.peek()
        if found is None:
            raise OSError(errno.EIO, "the accounting table can't be kept", self._layout.usage)
        return found

    def peek(self) -> Usage | None:
        """Return the table's numbers, or None where there is no table; makes nothing.

        Raises:
            OSError: it can't be read.
        """
        table = memoryview(bytearray(_TABLE_NBYTES))
        with self._opened() as descriptor:
            if descriptor is None or read_fully(self._files, descriptor, table, 0) < _TABLE_NBYTES:
                return None
        magic, number_of_shards, cursor, *boots = _HEADER.unpack_from(table)
        if (magic, number_of_shards) != (_MAGIC, SHARDS):
            return None
        numbers = table[_HEADER_NBYTES:].cast("Q")
        return Usage(numbers[0::2], numbers[1::2], cursor % SHARDS, tuple(boots))

    def uncharted_nbytes(self) -> int:
        """Return the physical bytes of unfinished writes and quarantine, which no table holds.

        Raises:
            OSError: it can't be told.
        """
        quarantined = scan_if_there(self._files, self._layout.quarantine)
        return self._temporaries.occupied_nbytes() + sum(
            physical_nbytes(status) for _, status in quarantined
        )

    def namespaces(self) -> list[str]:
        """Return the fingerprint of every namespace.

        Raises:
            OSError: it can't be told.
        """
        return namespaces(self._files, self._layout)

    def look(self, shard: int, names: list[str]) -> list[Found]:
        """Return path and status of the entries that one shard has in the namespaces *names*.

        Raises:
            OSError: it can't be looked at.
        """
        return [entry for name in names for entry in self._look_at(self._layout.shard(name, shard))]

    def chart(self, shard: int, found: list[Found]) -> None:
        """Set the numbers of one shard to what was *found* in it.

        Raises:
            OSError: they can't be set.
        """
        self._set(shard, nbytes_of(found), len(found))

    def rescan(self, shard: int) -> None:
        """Look at one shard and set its numbers.

        A change that another process makes meanwhile is seen by the directory's time and looked at
        again.

        Raises:
            OSError: it can't be looked at, or its numbers can't be set.
        """
        directories = [self._layout.shard(name, shard) for name in self.namespaces()]
        for _ in range(_RESCANS):
            before = [self._changed_ns(directory) for directory in directories]
            there = [path for path, ns in zip(directories, before, strict=True) if ns]
            self.chart(shard, [entry for path in there for entry in self._look_at(path)])
            if before == [self._changed_ns(directory) for directory in directories]:
                break

    def charge(self, shard: int, nbytes: int, entries: int) -> None:
        """Count so much more in *shard*: positive before it appears there, negative after it went.

        A process that dies in between leaves too much counted, never too little, and the cap holds. Small
        shards are rescanned afterwards; where that would take long, the rotation comes round.
        Where there is no table, the next `usage` makes one.

        Raises:
            OSError: it can't be counted.
        """
        offset = _offset(shard)
        pair = memoryview(bytearray(_PAIR.size))
        with self._opened(writable=True) as descriptor:
            if descriptor is None:
                return
            if read_fully(self._files, descriptor, pair, offset) < _PAIR.size:
                return
            old_nbytes, old_entries = _PAIR.unpack(pair)
            new = max(0, old_nbytes + nbytes), max(0, old_entries + entries)
            _PAIR.pack_into(pair, 0, *(min(number, _LARGEST) for number in new))
            write_fully(self._files, descriptor, pair, offset)

    def note(self, shard: int, usage: Usage) -> Usage:
        """Make sure of the numbers of a shard that was charged, if that is quick; return the new ones.

        Raises:
            OSError: as `rescan`.
        """
        if usage.entries[shard] > QUICK_ENTRIES:
            return usage
        self.rescan(shard)
        return self.usage()

    def rotate(self, usage: Usage) -> None:
        """Rescan the shard whose turn it was in *usage*.

        Raises:
            OSError: as `rescan`.
        """
        self.rescan(usage.cursor)
        self._write(_CURSOR.pack((usage.cursor + 1) % SHARDS), _CURSOR_OFFSET)

    def rebuild(self, progress: Callable[[int, int], None] = lambda _done, _all: None) -> None:
        """Make the table anew from a scan of everything, and look again at what changed meanwhile.

        Args:
            progress: is told how many shards of how many are done.

        Raises:
            OSError: something can't be looked at, or the table can't be written.
        """
        before = self.peek()
        # Several machines may share a root; each of them has its own boots.
        others = [boot for boot in before.boots if boot != self._boot] if before else []
        boots = (self._boot, *others, *[self._boot] * _BOOTS)[:_BOOTS]
        table = memoryview(bytearray(_TABLE_NBYTES))
        _HEADER.pack_into(table, 0, _MAGIC, SHARDS, 0, *boots)
        numbers = table[_HEADER_NBYTES:].cast("Q")
        names = self.namespaces()
        scanned: dict[tuple[str, int], int] = {}
        for index, name in enumerate(names):
            for shard in shards(self._files, self._layout, name):
                directory = self._layout.shard(name, shard)
                scanned[name, shard] = self._changed_ns(directory)
                for _, status in self._look_at(directory):
                    numbers[2 * shard] += physical_nbytes(status)
                    numbers[2 * shard + 1] += 1
                progress(index * SHARDS + shard, len(names) * SHARDS)
        progress(len(names) * SHARDS, len(names) * SHARDS)
        self._publisher.publish_bytes(self._layout.usage, table)
        for shard in self._changed_since(scanned):
            self.rescan(shard)

    def _changed_since(self, scanned: dict[tuple[str, int], int]) -> set[int]:
        """Return the shards that changed since their directories had these times, and new ones."""
        now = {
            (name, shard): self._changed_ns(self._layout.shard(name, shard))
            for name in self.namespaces()
            for shard in shards(self._files, self._layout, name)
        }
        return {shard for (_, shard), _ in scanned.items() ^ now.items()}

    def _changed_ns(self, directory: str) -> int:
        try:
            return self._files.status(directory).st_mtime_ns
        except FileNotFoundError:
            return 0

    def _look_at(self, directory: str) -> list[Found]:
        return [
            (f"{directory}/{name}", status)
            for name, status in scan_if_there(self._files, directory)
            if is_entry(name, status.st_mode)
        ]

    def _set(self, shard: int, nbytes: int, entries: int) -> None:
        self._write(_PAIR.pack(nbytes, entries), _offset(shard))

    def _write(self, numbers: bytes, offset: int) -> None:
        """Set *numbers*; where there is no table, the next `usage` makes one that is right."""
        with self._opened(writable=True) as descriptor:
            if descriptor is not None:
                write_fully(self._files, descriptor, memoryview(numbers), offset)

    @contextlib.contextmanager
    def _opened(self, *, writable: bool = False) -> Iterator[int | None]:
        """Open the table for the time of the block; None where there is none."""
        try:
            descriptor = self._files.open(self._layout.usage, writable=writable)
        except OSError as error:
            if error.errno not in NOT_THERE:
                raise
            yield None
            return
        try:
            is_file = stat.S_ISREG(self._files.descriptor_status(descriptor).st_mode)
            yield descriptor if is_file else None
        finally:
            self._files.close(descriptor)


def nbytes_of(found: list[Found]) -> int:
    """Return the physical bytes of entries."""
    return sum(physical_nbytes(status) for _, status in found)


def _offset(shard: int) -> int:
    return _HEADER_NBYTES + shard * _PAIR.size
