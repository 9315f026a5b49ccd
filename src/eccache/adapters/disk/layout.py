"""Where things are under a root.

```
<root>/v1/<namespace, 16 hex>/<shard, 3 hex>/<escaped key>.safetensors     entries
<root>/v1/<namespace>/namespace.json                                       what the namespace is, in words
<root>/v1/unfinished/                                                      unfinished writes
<root>/v1/quarantine/                                                      damaged entries
<root>/v1/usage                                                            the accounting table
```
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from eccache.domain.entry_ref import EntryRef
from eccache.domain.file_name import SHARD_DIGITS, SUFFIX, file_name
from eccache.domain.namespace import FORMAT_VERSION
from eccache.ports.file_operations import DirectoryOperations

SHARDS: Final = 16**SHARD_DIGITS
_SHARD_SHIFT: Final = 64 - 4 * SHARD_DIGITS
_NAMESPACE: Final = re.compile(r"[0-9a-f]{16}")
_SHARD: Final = re.compile(rf"[0-9a-f]{{{SHARD_DIGITS}}}")
NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What it means that there is nothing of ours: no name, a link, or a socket."""
_BLOCK_NBYTES: Final = 512
"""`st_blocks` counts these, whatever the file system's own block is."""


class Layout:
    """Names under one root. Immutable.

    Args:
        root: absolute path.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.version = f"{root}/v{FORMAT_VERSION}"
        self.temporary = f"{self.version}/unfinished"
        self.quarantine = f"{self.version}/quarantine"
        self.usage = f"{self.version}/usage"
        self._version_prefix = self.version + "/"

    def namespace(self, fingerprint: str) -> str:
        """Return the directory of a namespace."""
        return f"{self._version_prefix}{fingerprint}"

    def shard(self, fingerprint: str, index: int) -> str:
        """Return a shard's directory, of one namespace."""
        return f"{self._version_prefix}{fingerprint}/{index:0{SHARD_DIGITS}x}"

    def entry(self, ref: EntryRef) -> str:
        """Return the path of *ref*'s entry."""
        key = ref.key
        shard = key.chunk_hash >> _SHARD_SHIFT
        return f"{self._version_prefix}{ref.namespace}/{shard:0{SHARD_DIGITS}x}/{file_name(key)}"


def shard_of(ref: EntryRef) -> int:
    """Return the index of *ref*'s shard, below `SHARDS`."""
    return ref.key.chunk_hash >> _SHARD_SHIFT


def parent(path: str) -> str:
    """Return the directory that *path* is in."""
    return path.rpartition("/")[0] or "/"


def physical_nbytes(status: os.stat_result) -> int:
    """Return what a file occupies: its blocks, but at least its length.

    Some file systems tell of blocks seconds after they were written (ZFS), and some in user space never: a
    cap that believed them would be none.
    """
    return max(status.st_blocks * _BLOCK_NBYTES, status.st_size)


def namespaces(files: DirectoryOperations, layout: Layout) -> list[str]:
    """Return the fingerprint of every namespace that has a directory; none where there is no root.

    Raises:
        OSError: it can't be told.
    """
    return [
        name
        for name, status in scan_if_there(files, layout.version)
        if stat.S_ISDIR(status.st_mode) and _NAMESPACE.fullmatch(name)
    ]


def shards(files: DirectoryOperations, layout: Layout, fingerprint: str) -> Iterator[int]:
    """Yield the index of every shard that has a directory in a namespace.

    Raises:
        OSError: it can't be told.
    """
    for name, status in scan_if_there(files, layout.namespace(fingerprint)):
        if stat.S_ISDIR(status.st_mode) and _SHARD.fullmatch(name):
            yield int(name, 16)


def is_entry(name: str, mode: int) -> bool:
    """Return whether a directory entry of a shard is one of ours: a regular file with our suffix."""
    return name.endswith(SUFFIX) and stat.S_ISREG(mode)


def scan_if_there(files: DirectoryOperations, directory: str) -> list[tuple[str, os.stat_result]]:
    """Return name and status of everything in *directory*; nothing where there is none.

    Raises:
        OSError: it is there and can't be read.
    """
    try:
        return files.scan(directory)
    except OSError as error:
        if error.errno in NOT_THERE:
            return []
        raise
