"""The root's directories: made when they are missed, with the right permissions."""

from __future__ import annotations

from typing import Final

from eccache.adapters.disk.layout import Layout, parent
from eccache.adapters.disk.policy import DiskPolicy, Durability
from eccache.ports.file_operations import FileOperations

_ATTEMPTS: Final = 4
"""At a directory whose parent is there and then is not: others collect it, or it is a link to nowhere."""


class Directories:
    """Makes directories at and under one root. Any thread may call it.

    Args:
        layout: names the root.
        files: file operations.
        policy: modes and durability.
    """

    def __init__(self, layout: Layout, files: FileOperations, policy: DiskPolicy) -> None:
        self._root = layout.root
        self._files = files
        self._policy = policy
        self._anchored: set[str] = set()

    def make(self, path: str, *, attempts: int = _ATTEMPTS) -> None:
        """Make *path* and what is missing between the root and it. Never anything above the root.

        If the root's own parent is gone, or what the root links to, a mount is probably gone, and what is
        below is not ours.

        Raises:
            OSError: it can't be made.
        """
        try:
            self._files.make_directory(path, self._policy.directory_mode & 0o777)
        except FileExistsError:
            return
        except FileNotFoundError:
            if path == self._root or attempts == 0:
                raise
            self._anchored.clear()
            self.make(parent(path))
            self.make(path, attempts=attempts - 1)
            return
        self._anchored.discard(path)  # if there was one before, this is another
        if self._policy.shared_group:
            self._files.set_mode(path, self._policy.directory_mode)

    def anchor(self, path: str) -> None:
        """Wait until what was just renamed into directory *path* survives a power cut, if that is wanted.

        The directory's own name must survive too, whichever process made it; that is seen to once.

        Raises:
            OSError: it can't be known.
        """
        if self._policy.durability is not Durability.POWER:
            return
        self._files.sync_directory(path)
        while path not in self._anchored and len(path) >= len(self._root):
            self._files.sync_directory(parent(path))
            self._anchored.add(path)
            path = parent(path)
