"""Unfinished writes: files that have a place but no name that anyone looks up.

All are in one directory, so that those which a killed process left are found without a scan. Whether a
file still has its writer is never told by a process id. A writer holds a lock on its file, which the
kernel takes back when the writer is gone; where locks do nothing, age decides. Should a file that
has a writer be taken away all the same, its writer notices at `rename` and writes again.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import stat
from collections.abc import Iterator
from typing import Final

import attrs

from eccache.adapters.disk.directories import Directories
from eccache.adapters.disk.layout import Layout, physical_nbytes, scan_if_there
from eccache.adapters.disk.policy import DiskPolicy
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations

_NAME_NBYTES: Final = 12
_ATTEMPTS: Final = 4


@attrs.frozen
class Temporary:
    """A file that is being written.

    Attributes:
        path: its name, never used before.
        descriptor: open for reading and writing, and locked where locks work.
    """

    path: str
    descriptor: int


class Temporaries:
    """Makes unfinished files and collects those without a writer. Any thread may call it.

    Args:
        layout: where they are.
        files: file operations.
        directories: makes their directory.
        clock: for their age.
        policy: modes and ages.
    """

    def __init__(
        self,
        layout: Layout,
        files: FileOperations,
        directories: Directories,
        clock: Clock,
        policy: DiskPolicy,
    ) -> None:
        self._directory = layout.temporary
        self._files = files
        self._directories = directories
        self._clock = clock
        self._policy = policy
        self._locks_work: bool | None = None

    @contextlib.contextmanager
    def created(self) -> Iterator[Temporary]:
        """Make an unfinished file for the time of the block, which renames it if it gets that far.

        Raises:
            OSError: it can't be made; then nothing is left behind.
        """
        temporary = self._locked()
        try:
            yield temporary
        except BaseException:
            self._forget(temporary)
            raise
        finally:
            with contextlib.suppress(OSError):
                self._files.close(temporary.descriptor)

    def occupied_nbytes(self) -> int:
        """Return the physical bytes of all unfinished files, once the stale ones are taken away.

        Raises:
            OSError: it can't be told.
        """
        occupied_nbytes = 0
        for name, status in scan_if_there(self._files, self._directory):
            if not (self._is_stale(status.st_mtime) and self._unlinked(name, status.st_mode)):
                occupied_nbytes += physical_nbytes(status)
        return occupied_nbytes

    def collect(self) -> int:
        """Take away every unfinished file that has no writer, and return how many.

        Raises:
            OSError: it can't be told what is there.
        """
        collected = 0
        for name, status in scan_if_there(self._files, self._directory):
            if self._is_stale(status.st_mtime) or (
                self._can_trust_locks() and not self._has_writer(name)
            ):
                collected += self._unlinked(name, status.st_mode)
        return collected

    def _locked(self) -> Temporary:
        """Make a file that stays: between making and locking it may be taken for a dead writer's."""
        for attempt in range(1, _ATTEMPTS + 1):
            temporary = self._create()
            stays = False
            try:
                if self._policy.shared_group:
                    self._files.set_mode(temporary.descriptor, self._policy.file_mode)
                has_lock = self._lock(temporary.descriptor)
                stays = attempt == _ATTEMPTS or (has_lock and self._is_linked(temporary))
            finally:
                if not stays:
                    self._forget(temporary)
                    with contextlib.suppress(OSError):
                        self._files.close(temporary.descriptor)
            if stays:
                break
        return temporary

    def _is_linked(self, temporary: Temporary) -> bool:
        return self._files.descriptor_status(temporary.descriptor).st_nlink > 0

    def _forget(self, temporary: Temporary) -> None:
        # What can't be taken away now is collected later.
        with contextlib.suppress(OSError):
            self._files.unlink(temporary.path)

    def _create(self) -> Temporary:
        for _ in range(_ATTEMPTS):
            path = f"{self._directory}/{secrets.token_hex(_NAME_NBYTES)}"
            try:
                return Temporary(path, self._files.create(path, self._policy.file_mode))
            except FileNotFoundError:
                self._directories.make(self._directory)
            except FileExistsError:
                continue
        raise FileNotFoundError(errno.ENOENT, "keeps vanishing", self._directory)

    def _lock(self, descriptor: int) -> bool:
        try:
            return self._files.lock(descriptor)
        except OSError:
            return True  # A file system without locks says of every file that nobody has it.

    def _can_trust_locks(self) -> bool:
        """Return whether a lock that one open file has is denied to another, tried out once."""
        if self._locks_work is None:
            try:
                with self.created() as probe:
                    self._locks_work = self._has_writer(probe.path.rpartition("/")[2])
                    self._files.unlink(probe.path)
            except OSError:
                return False
        return self._locks_work

    def _has_writer(self, name: str) -> bool:
        try:
            descriptor = self._files.open(f"{self._directory}/{name}")
        except OSError:
            return True  # Not ours to judge, e.g. a link; its age will tell.
        try:
            return not self._lock(descriptor)
        finally:
            self._files.close(descriptor)

    def _is_stale(self, modified_seconds: float) -> bool:
        # Either way: a time that far in the future is from before the clock was set back.
        age_seconds = abs(self._clock.unix() - modified_seconds)
        return age_seconds > self._policy.stale_temporary_seconds

    def _unlinked(self, name: str, mode: int) -> bool:
        if stat.S_ISDIR(mode):
            return False
        try:
            self._files.unlink(f"{self._directory}/{name}")
        except OSError:
            return False
        return True
