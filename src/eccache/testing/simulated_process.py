"""One process on a simulated disk: its descriptors, and the moment at which it dies."""

from __future__ import annotations

import errno
import os
import stat

from eccache.ports.file_operations import Space
from eccache.testing.simulated_disk import Node, SimulatedDisk


class ProcessDied(BaseException):
    """The process is gone; nothing that it would do from now on happens."""


class SimulatedProcess:
    """Implements `ports.file_operations.FileOperations` on a simulated disk.

    Args:
        disk: what it shares with others.

    Attributes:
        steps_left: operations until it dies; None: it lives.
        operations: the names of all operations so far.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._open: dict[int, Node] = {}
        self._next = 3
        self.steps_left: int | None = None
        self.operations: list[str] = []

    @property
    def open_descriptors(self) -> int:
        """How many files it has open."""
        return len(self._open)

    def die(self) -> None:
        """Give up all descriptors and locks, as the kernel does for a process that ends."""
        self.steps_left = 0
        for descriptor in list(self._open):
            self._forget(descriptor)

    def exists(self, path: str) -> bool:
        """Return whether *path* is a name."""
        self._step("exists")
        try:
            self._disk.find(path)
        except OSError:
            return False
        return True

    def status(self, path: str) -> os.stat_result:
        """Return what `lstat` would."""
        self._step("status")
        return self._disk.find(path).status()

    def scan(self, directory: str) -> list[tuple[str, os.stat_result]]:
        """Return what is in *directory*."""
        self._step("scan")
        node = self._disk.find(directory)
        if not node.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, "no directory", directory)
        return [(name, child.status()) for name, child in node.names.items()]

    def make_directory(self, path: str, mode: int) -> None:
        """Make a directory."""
        self._step("make_directory")
        self._disk.make(path, stat.S_IFDIR | mode)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self._step("remove_directory")
        directory, name = self._disk.parent(path)
        if self._disk.find(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._disk.link(directory, name, None)

    def rename(self, source: str, target: str) -> None:
        """Rename a file."""
        self._step("rename")
        node = self._disk.find(source)
        old_directory, old_name = self._disk.parent(source)
        directory, name = self._disk.parent(target)
        if name in directory.names and directory.names[name].is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", target)
        self._disk.link(directory, name, node)
        self._disk.link(old_directory, old_name, None)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        self._step("unlink")
        directory, name = self._disk.parent(path)
        if self._disk.find(path).is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._disk.link(directory, name, None)

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open what exists."""
        self._step("open")
        node = self._disk.find(path)
        if stat.S_ISLNK(node.mode):
            raise OSError(errno.ELOOP, "is a link", path)
        if node.is_directory and writable:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return self._remember(node)

    def create(self, path: str, mode: int) -> int:
        """Make a new file."""
        self._step("create")
        return self._remember(self._disk.make(path, stat.S_IFREG | mode))

    def close(self, descriptor: int) -> None:
        """Close a file; the kernel has done so already for a process that died."""
        if self.steps_left is not None and descriptor not in self._open:
            return
        self._step("close")
        self._node(descriptor)
        self._forget(descriptor)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        """Read from a file."""
        self._step("read")
        node = self._node(descriptor)
        if node.is_directory:
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        found = node.data[offset : offset + target.nbytes]
        target[: len(found)] = found
        return len(found)

    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write to a file."""
        self._step("write")
        node = self._node(descriptor)
        end = offset + data.nbytes
        self._disk.reserve(node, end)
        node.data.extend(bytes(max(0, end - len(node.data))))
        node.data[offset:end] = data
        node.modified_ns = node.changed_ns = self._disk.now_ns()
        return data.nbytes

    def allocate(self, descriptor: int, nbytes: int) -> bool:
        """Reserve room."""
        self._step("allocate")
        node = self._node(descriptor)
        self._disk.reserve(node, nbytes)
        node.data.extend(bytes(max(0, nbytes - len(node.data))))
        return True

    def sync(self, descriptor: int) -> None:
        """Make a file's bytes durable."""
        self._step("sync")
        node = self._node(descriptor)
        node.durable_data = bytes(node.data)

    def descriptor_status(self, descriptor: int) -> os.stat_result:
        """Return what `fstat` would."""
        self._step("descriptor_status")
        return self._node(descriptor).status()

    def set_mode(self, target: int | str, mode: int) -> None:
        """Set permission bits."""
        self._step("set_mode")
        node = self._disk.find(target) if isinstance(target, str) else self._node(target)
        node.mode = stat.S_IFMT(node.mode) | mode

    def set_modified(self, descriptor: int, unix_ns: int | None) -> None:
        """Set the time of modification."""
        self._step("set_modified")
        now_ns = self._disk.now_ns()
        self._node(descriptor).modified_ns = now_ns if unix_ns is None else unix_ns

    def lock(self, descriptor: int) -> bool:
        """Lock an open file."""
        self._step("lock")
        node = self._node(descriptor)
        if node.locked_by not in (None, (self, descriptor)):
            return False
        node.locked_by = (self, descriptor)
        return True

    def map_private(
        self, descriptor: int, nbytes: int, *, only_cached: bool = False
    ) -> memoryview | None:
        """Return a copy, which is what a private mapping of a file that nobody changes is."""
        self._step("map_private")
        data = self._node(descriptor).data
        if len(data) < nbytes:
            raise OSError(errno.EFAULT, "file is shorter")
        return memoryview(bytearray(data[:nbytes]))

    def space(self, path: str) -> Space:
        """Return what is free."""
        self._step("space")
        self._disk.find(path)
        capacity_nbytes = self._disk.capacity_nbytes
        return Space(capacity_nbytes - self._disk.used_nbytes(), capacity_nbytes)

    def sync_directory(self, path: str) -> None:
        """Make a directory's names durable."""
        self._step("sync_directory")
        node = self._disk.find(path)
        node.durable_names = dict(node.names)

    def user(self) -> int:
        """Return this process's user."""
        self._step("user")
        return self._disk.root.user

    def boot(self) -> str:
        """Return how many power cuts there were."""
        return str(self._disk.boots)

    def _step(self, operation: str) -> None:
        """Count an operation, or die before it happens."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                self.die()
                raise ProcessDied
            self.steps_left -= 1
        self.operations.append(operation)

    def _node(self, descriptor: int) -> Node:
        if descriptor not in self._open:
            raise OSError(errno.EBADF, "not open")
        return self._open[descriptor]

    def _remember(self, node: Node) -> int:
        self._next += 1
        self._open[self._next] = node
        return self._next

    def _forget(self, descriptor: int) -> None:
        node = self._open.pop(descriptor)
        if node.locked_by == (self, descriptor):
            node.locked_by = None
