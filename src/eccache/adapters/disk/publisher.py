"""Publishing: a frame becomes visible whole, under its name, in one step, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.layout import parent, physical_nbytes
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.policy import DiskPolicy, Durability
from eccache.adapters.disk.recency import Recency
from eccache.adapters.disk.temporaries import Temporaries, Temporary
from eccache.adapters.disk.transfer import write_fully
from eccache.domain.frame import Frame
from eccache.ports.file_operations import FileOperations

_ATTEMPTS: Final = 3
"""To write a file."""
_NAMINGS: Final = 8
"""To give a file its name: far cheaper than to write it again."""


class Publisher:
    """Writes files and gives them their names. Any thread may call it.

    Args:
        files: file operations.
        directories: makes what is missing.
        temporaries: where files are written.
        recency: sets the time of last use.
        policy: durability.
        notices: says once what the file system lacks.
    """

    def __init__(
        self,
        files: FileOperations,
        directories: Directories,
        temporaries: Temporaries,
        recency: Recency,
        policy: DiskPolicy,
        notices: Notices,
    ) -> None:
        self._files = files
        self._directories = directories
        self._temporaries = temporaries
        self._recency = recency
        self._policy = policy
        self._notices = notices

    def publish(self, path: str, frame: Frame, announce: Callable[[int], None]) -> None:
        """Write *frame* and give it the name *path*, in place of whatever file has it.

        Room is reserved before the first byte is written, so that a full disk costs nothing.

        Args:
            path: the name.
            frame: what to write.
            announce: is told the file's physical bytes just before it gets its name.

        Raises:
            OSError: it could not be done; then nothing is visible and nothing left behind.
        """

        def write(descriptor: int) -> None:
            if not self._files.allocate(descriptor, frame.nbytes):
                self._notices.once("store.allocation.unsupported", effect="slower writes")
            for offset, piece in frame.pieces():
                write_fully(self._files, descriptor, piece, offset)
            self._recency.set(descriptor)
            announce(physical_nbytes(self._files.descriptor_status(descriptor)))

        self._publish(path, write)
        self._secure_name(path)

    def publish_bytes(self, path: str, data: memoryview) -> None:
        """Write a small file and give it the name *path*, in place of whatever file has it.

        Raises:
            OSError: it could not be done; then nothing changed.
        """
        self._publish(path, lambda descriptor: write_fully(self._files, descriptor, data, 0))

    def _publish(self, path: str, write: Callable[[int], None]) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._temporaries.created() as temporary:
                    write(temporary.descriptor)
                    self._name(temporary, path)
            except FileNotFoundError:
                # Somebody took the unfinished file away, or all of the root.
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def secure(self, descriptor: int, path: str) -> None:
        """Make what another process published durable, if that is wanted: it may have died before.

        Args:
            descriptor: the published file, open.
            path: its name.

        Raises:
            OSError: it can't be known.
        """
        if self._policy.durability is Durability.POWER:
            self._files.sync(descriptor)
            self._directories.anchor(parent(path))

    def _secure_name(self, path: str) -> None:
        try:
            self._directories.anchor(parent(path))
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise

    def _name(self, temporary: Temporary, path: str) -> None:
        if self._policy.durability is Durability.POWER:
            self._files.sync(temporary.descriptor)
        for _ in range(_NAMINGS):
            try:
                return self._files.rename(temporary.path, path)
            except FileNotFoundError:  # whoever collects may take away again what is empty
                self._directories.make(parent(path))
        return self._files.rename(temporary.path, path)
