"""Going through a root, one directory at a time."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from eccache.adapters.disk.layout import (
    Layout,
    is_entry,
    namespaces,
    physical_nbytes,
    scan_if_there,
    shards,
)
from eccache.adapters.disk.namespace_file import NAME
from eccache.domain.namespace import FORMAT_VERSION
from eccache.ports.file_operations import DirectoryOperations
from eccache.ports.maintenance import Amount

_VERSION: Final = re.compile(r"v([1-9][0-9]*)")


@attrs.frozen
class EntryFile:
    """An entry as its directory has it.

    Attributes:
        namespace: fingerprint.
        shard: index of its shard.
        name: of the file.
        path: of the file.
        status: what is known of it.
    """

    namespace: str
    shard: int
    name: str
    path: str
    status: os.stat_result

    @property
    def nbytes(self) -> int:
        """Physical bytes."""
        return physical_nbytes(self.status)


@attrs.frozen
class Shard:
    """One shard directory of one namespace.

    Attributes:
        namespace: fingerprint.
        index: which.
        directory: its path.
        found: name and status of every entry in it.
    """

    namespace: str
    index: int
    directory: str
    found: list[tuple[str, os.stat_result]]

    def files(self) -> Iterator[EntryFile]:
        """Yield the entries."""
        for name, status in self.found:
            path = f"{self.directory}/{name}"
            yield EntryFile(self.namespace, self.index, name, path, status)

    def amount(self) -> Amount:
        """Return how many entries there are and what they occupy."""
        nbytes = sum(physical_nbytes(status) for _, status in self.found)
        return Amount(len(self.found), nbytes)


def entry_shards(
    files: DirectoryOperations,
    layout: Layout,
    *,
    wanted: Callable[[int], bool] = lambda _shard: True,
    unreadable: Callable[[str, OSError], None] = lambda _path, _error: None,
) -> Iterator[Shard]:
    """Yield one shard directory after the other, with the entries that are in it.

    Args:
        files: file operations.
        layout: the root's.
        wanted: says of a shard's index whether it is looked into.
        unreadable: is told of a directory that can't be looked into, which is then left out.

    Raises:
        OSError: the root itself can't be looked into.
    """
    for namespace in namespaces(files, layout):
        try:
            indices = sorted(shards(files, layout, namespace))
        except OSError as error:
            unreadable(layout.namespace(namespace), error)
            continue
        for index in filter(wanted, indices):
            directory = layout.shard(namespace, index)
            try:
                found = scan_if_there(files, directory)
            except OSError as error:
                unreadable(directory, error)
                continue
            entries = [(name, status) for name, status in found if is_entry(name, status.st_mode)]
            yield Shard(namespace, index, directory, entries)


def format_versions(files: DirectoryOperations, root: str) -> dict[int, str]:
    """Return the directory of every format version under *root*, by version.

    Raises:
        OSError: the root can't be looked into.
    """
    return {
        int(match[1]): f"{root}/{name}"
        for name, status in files.scan(f"{root}/.")  # the root itself may be a link
        if (match := _VERSION.fullmatch(name)) and stat.S_ISDIR(status.st_mode)
    }


def other_formats(files: DirectoryOperations, root: str) -> dict[int, str]:
    """Return the directories of the format versions that are not this one.

    Raises:
        OSError: the root can't be looked into.
    """
    found = format_versions(files, root)
    found.pop(FORMAT_VERSION, None)
    return found


def tree_amount(files: DirectoryOperations, directory: str) -> Amount:
    """Return the regular files below *directory*, whatever they are; what can't be read is left out."""
    amount = Amount()
    with contextlib.suppress(OSError):
        for name, status in files.scan(directory):
            if stat.S_ISDIR(status.st_mode):
                amount += tree_amount(files, f"{directory}/{name}")
            elif stat.S_ISREG(status.st_mode):
                amount += Amount(1, physical_nbytes(status))
    return amount


def remove_tree(files: DirectoryOperations, directory: str) -> Amount:
    """Remove *directory* and all below it, following no link; return the regular files that went.

    What can't be removed stays, and so do the directories that it is in.
    """
    amount = Amount()
    with contextlib.suppress(OSError):
        for name, status in files.scan(directory):
            path = f"{directory}/{name}"
            if stat.S_ISDIR(status.st_mode):
                amount += remove_tree(files, path)
                continue
            with contextlib.suppress(OSError):
                files.unlink(path)
                if stat.S_ISREG(status.st_mode):
                    amount += Amount(1, physical_nbytes(status))
        files.remove_directory(directory)
    return amount


def remove_empty_directories(files: DirectoryOperations, layout: Layout) -> int:
    """Remove shards without an entry, then namespaces without a shard; return how many directories.

    A directory is removed only if it is empty, so that nothing can be lost; whoever publishes into one
    that has just gone makes it anew.

    Raises:
        OSError: the root can't be looked into.
    """
    removed = 0
    for namespace in namespaces(files, layout):
        with contextlib.suppress(OSError):
            for index in shards(files, layout, namespace):
                removed += _removed(files, layout.shard(namespace, index))
            directory = layout.namespace(namespace)
            rest = [name for name, _ in files.scan(directory)]
            if rest == [NAME]:
                files.unlink(f"{directory}/{NAME}")
            removed += _removed(files, directory)
    return removed


def _removed(files: DirectoryOperations, directory: str) -> bool:
    try:
        files.remove_directory(directory)
    except OSError:
        return False
    return True
