"""Publishing: a frame becomes visible whole, under its name, in one step, or not at all."""

from __future__ import annotations

import contextlib
import errno
from typing import Final

from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.layout import parent
from eccache.adapters.disk.notices import Notices
from eccache.adapters.disk.policy import DiskPolicy, Durability
from eccache.adapters.disk.recency import Recency
from eccache.adapters.disk.temporaries import Temporaries, Temporary
from eccache.domain.frame import Frame
from eccache.ports.file_operations import FileOperations

_ATTEMPTS: Final = 3


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

    def publish(self, path: str, frame: Frame) -> None:
        """Write *frame* and give it the name *path*, in place of whatever file has it.

        Room is reserved before the first byte is written, so that a full disk costs nothing.

        Raises:
            OSError: it could not be done; then nothing is visible and nothing left behind.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._temporaries.created() as temporary:
                    if not self._files.allocate(temporary.descriptor, frame.nbytes):
                        self._notices.once("store.allocation.unsupported", effect="slower writes")
                    for offset, piece in frame.pieces():
                        self._write(temporary.descriptor, piece, offset)
                    self._recency.set(temporary.descriptor)
                    self._name(temporary, path)
            except FileNotFoundError:
                # Somebody took the unfinished file away, or all of the root.
                if attempt == _ATTEMPTS:
                    raise
            else:
                self._anchor(path)
                return

    def publish_bytes(self, path: str, data: memoryview) -> None:
        """Write a small file and give it the name *path*, in place of whatever file has it.

        Raises:
            OSError: it could not be done; then nothing changed.
        """
        with self._temporaries.created() as temporary:
            self._write(temporary.descriptor, data, 0)
            self._name(temporary, path)

    def _write(self, descriptor: int, data: memoryview, offset: int) -> None:
        while data.nbytes:
            written = self._files.write(descriptor, data, offset)
            if written == 0:
                raise OSError(errno.EIO, "nothing more can be written")
            data = data[written:]
            offset += written

    def _anchor(self, path: str) -> None:
        try:
            self._directories.anchor(parent(path))
        except OSError:
            with contextlib.suppress(OSError):
                self._files.unlink(path)
            raise

    def _name(self, temporary: Temporary, path: str) -> None:
        if self._policy.durability is Durability.POWER:
            self._files.sync(temporary.descriptor)
        try:
            self._files.rename(temporary.path, path)
        except FileNotFoundError:
            self._directories.make(parent(path))
            self._files.rename(temporary.path, path)
