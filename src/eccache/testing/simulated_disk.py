"""A file system in memory that knows what has been written and what would survive a power cut.

Bytes are durable once their file was synced, names once their directory was. A power cut leaves, of what
is not durable, any part: each sector or page of a file as it is or as it was, each name where it points to or
where it pointed to. So a store that is right here is right on any medium that keeps its word on `fsync`,
in whatever order it writes.
"""

from __future__ import annotations

import errno
import os
import random
import stat
from typing import Final, TypeVar

from eccache.ports.clock import Clock

T = TypeVar("T")
SECTOR_NBYTES: Final = 512
_PAGE_NBYTES: Final = 4096
_USER: Final = 1000


class Node:
    """A file, a directory, or something else that has a name.

    Attributes:
        mode: type and permission bits.
        user: its owner.
        data: a file's bytes, as every process sees them.
        durable_data: what a power cut leaves for certain.
        names: a directory's names, as every process sees them.
        durable_names: those that a power cut leaves for certain.
        links: how many names it has.
        reserved_nbytes: physical bytes.
        modified_ns: time of last modification.
        changed_ns: time of last change of status.
        locked_by: the open file that has it locked.
    """

    def __init__(self, number: int, mode: int, now_ns: int) -> None:
        self.number = number
        self.mode = mode
        self.user = _USER
        self.data = bytearray()
        self.durable_data = b""
        self.names: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.links = 0
        self.reserved_nbytes = 0
        self.modified_ns = now_ns
        self.changed_ns = now_ns
        self.locked_by: object | None = None

    @property
    def is_directory(self) -> bool:
        """Whether it has names in it."""
        return stat.S_ISDIR(self.mode)

    def status(self) -> os.stat_result:
        """Return what `stat` would."""
        whole_seconds = self.modified_ns // 1_000_000_000
        return os.stat_result(
            (
                *(self.mode, self.number, 1, self.links, self.user, _USER, len(self.data)),
                *(whole_seconds, whole_seconds, self.changed_ns // 1_000_000_000),
            ),
            {
                "st_mtime": self.modified_ns / 1_000_000_000,
                "st_mtime_ns": self.modified_ns,
                "st_ctime_ns": self.changed_ns,
                "st_blocks": self.reserved_nbytes // 512,
            },
        )

    def after_power_cut(self, rng: random.Random) -> None:
        """Become what a power cut may leave of it."""
        written = rng.choice([0.5, 0.9])  # how much had been written back by itself

        def which(now: T, durable: T) -> T:
            return now if rng.random() < written else durable

        names = {**self.durable_names, **self.names}
        left = {name: which(self.names, self.durable_names).get(name) for name in names}
        self.names = {name: node for name, node in left.items() if node is not None}
        self.durable_names = dict(self.names)
        if self.data != self.durable_data:
            nbytes = which(len(self.data), len(self.durable_data))
            mixed = bytearray(nbytes)
            unit_nbytes = rng.choice([SECTOR_NBYTES, _PAGE_NBYTES])
            for start in range(0, nbytes, unit_nbytes):
                end = min(start + unit_nbytes, nbytes)
                sector = which(bytes(self.data), self.durable_data)[start:end]
                mixed[start : start + len(sector)] = sector
            self.data = mixed
            self.durable_data = bytes(mixed)


class SimulatedDisk:
    """The tree that all processes see. One thread at a time.

    Args:
        clock: for times of modification.
        capacity_nbytes: how much fits.

    Attributes:
        boots: how often the power was cut.
        root: the uppermost directory.
    """

    def __init__(self, clock: Clock, capacity_nbytes: int = 1 << 40) -> None:
        self.capacity_nbytes = capacity_nbytes
        self._clock = clock
        self.boots = 0
        self._made = 0
        self._ticks = 0
        self.root = self._new(stat.S_IFDIR | 0o755)

    def now_ns(self) -> int:
        """Return the time in nanoseconds, a little later at each call."""
        self._ticks += 1
        return int(self._clock.unix() * 1_000_000_000) + self._ticks

    def find(self, path: str) -> Node:
        """Return what has the name *path*; links are not followed.

        Raises:
            FileNotFoundError: nothing has.
            NotADirectoryError: a part of the path is no directory.
        """
        node = self.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if not node.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = node.names[name]
        return node

    def parent(self, path: str) -> tuple[Node, str]:
        """Return the directory that *path* is in, and its name there.

        Raises:
            FileNotFoundError: there is no such directory.
            NotADirectoryError: it is none.
        """
        above, _, name = path.rpartition("/")
        node = self.find(above)
        if not node.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, "no directory", path)
        return node, name

    def make(self, path: str, mode: int) -> Node:
        """Make something new at *path*.

        Args:
            path: its name.
            mode: type and permission bits, e.g. `stat.S_IFLNK | 0o777`.

        Raises:
            FileExistsError: the name is taken.
        """
        directory, name = self.parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, "exists", path)
        node = self._new(mode)
        self.link(directory, name, node)
        return node

    def link(self, directory: Node, name: str, node: Node | None) -> None:
        """Let *name* in *directory* be *node*'s, or nobody's."""
        before = directory.names.pop(name, None)
        if before is not None:
            before.links -= 1
        if node is not None:
            directory.names[name] = node
            node.links += 1
            node.changed_ns = self.now_ns()
        directory.modified_ns = self.now_ns()

    def used_nbytes(self) -> int:
        """Return the physical bytes of everything that has a name."""
        return sum(node.reserved_nbytes for node in self.nodes())

    def nodes(self) -> list[Node]:
        """Return everything that has a name, once each."""
        found: dict[int, Node] = {}
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            if node.number not in found:
                found[node.number] = node
                waiting += node.names.values()
        return list(found.values())

    def reserve(self, node: Node, nbytes: int) -> None:
        """Give *node* physical room for *nbytes*.

        Raises:
            OSError: ENOSPC.
        """
        wanted = -(-nbytes // _PAGE_NBYTES) * _PAGE_NBYTES
        if wanted > node.reserved_nbytes:
            if self.used_nbytes() + wanted - node.reserved_nbytes > self.capacity_nbytes:
                raise OSError(errno.ENOSPC, "no space left")
            node.reserved_nbytes = wanted

    def cut_power(self, rng: random.Random) -> None:
        """Leave what a power cut may leave. Every process must be given up first."""
        self.boots += 1
        waiting = [self.root]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node.number not in seen:
                seen.add(node.number)
                node.after_power_cut(rng)
                waiting += node.names.values()
        for node in self.nodes():
            node.links = 0
        for node in self.nodes():
            for child in node.names.values():
                child.links += 1

    def _new(self, mode: int) -> Node:
        self._made += 1
        return Node(self._made, mode, self.now_ns())
