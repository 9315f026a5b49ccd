"""Damaged entries: out of sight of look-ups, kept within bounds for whoever wants to know why."""

from __future__ import annotations

import contextlib
import os
import secrets

from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.layout import Layout, physical_nbytes, scan_if_there
from eccache.adapters.disk.policy import DiskPolicy
from eccache.domain.file_name import SUFFIX
from eccache.ports.file_operations import FileOperations


class Quarantine:
    """Takes damaged entries. Any thread may call it.

    Args:
        layout: where it is.
        files: file operations.
        directories: makes its directory.
        policy: its bounds.
    """

    def __init__(
        self, layout: Layout, files: FileOperations, directories: Directories, policy: DiskPolicy
    ) -> None:
        self._directory = layout.quarantine
        self._files = files
        self._directories = directories
        self._policy = policy

    def take(self, path: str) -> None:
        """Move the entry at *path* here; where that can't be done, or it is too large, remove it.

        Raises:
            OSError: it can't be removed either.
        """
        nbytes = physical_nbytes(self._files.status(path))
        if nbytes > self._policy.quarantine_nbytes:
            self._files.unlink(path)
            return
        target = f"{self._directory}/{secrets.token_hex(8)}{SUFFIX}"
        try:
            self._move(path, target)
        except OSError:
            self._files.unlink(path)
        self.keep_bounds()

    def _move(self, path: str, target: str) -> None:
        try:
            self._files.rename(path, target)
        except FileNotFoundError:
            self._directories.make(self._directory)
            self._files.rename(path, target)

    def keep_bounds(self) -> None:
        """Remove the oldest of what is more than the bounds allow."""
        with contextlib.suppress(OSError):
            kept_nbytes = 0
            found = sorted(scan_if_there(self._files, self._directory), key=_newest_first)
            for index, (name, status) in enumerate(found):
                kept_nbytes += physical_nbytes(status)
                if (
                    index >= self._policy.quarantine_entries
                    or kept_nbytes > self._policy.quarantine_nbytes
                ):
                    with contextlib.suppress(OSError):
                        self._files.unlink(f"{self._directory}/{name}")


def _newest_first(found: tuple[str, os.stat_result]) -> int:
    # A rename leaves the time of modification as it is, and sets that of the status.
    return -found[1].st_ctime_ns
