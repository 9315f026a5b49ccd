"""When an entry was last used: its file's time of modification, since nothing else ever changes a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from eccache.adapters.disk.policy import DiskPolicy
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations

_NS: Final = 1_000_000_000


class Recency:
    """Keeps and ranks times of last use. Any thread may call it.

    Args:
        files: file operations.
        clock: says what time it is.
        policy: how coarse the time is, and how far ahead it is believed.
    """

    def __init__(self, files: FileOperations, clock: Clock, policy: DiskPolicy) -> None:
        self._files = files
        self._clock = clock
        self._policy = policy

    def set(self, descriptor: int) -> None:
        """Set an open file's time of last use to now, as far as this user may; a fault changes nothing."""
        try:
            self._files.set_modified(descriptor, int(self._clock.unix() * _NS))
        except PermissionError:
            # Another user's file in a shared group: only the file system's own now may be set.
            with contextlib.suppress(OSError):
                self._files.set_modified(descriptor, None)
        except OSError:
            return

    def is_due(self, status: os.stat_result) -> bool:
        """Return whether a use now is to be noted: the last was not noted a short while ago."""
        return abs(self._clock.unix() - status.st_mtime) > self._policy.touch_seconds

    def touch(self, descriptor: int, status: os.stat_result) -> None:
        """Note that an open file is used, if that is due."""
        if self.is_due(status):
            self.set(descriptor)

    def ranking(self) -> Callable[[int], int]:
        """Return what to order times of modification (nanoseconds) by, the least recently used first.

        A time in the future is from before the clock was set back: older than all that was used since.
        Clocks of several hosts may differ a little, so a near future is now.
        """
        horizon_ns = int((self._clock.unix() + self._policy.future_seconds) * _NS)

        def rank(modified_ns: int) -> int:
            return modified_ns if modified_ns <= horizon_ns else modified_ns - (1 << 64)

        return rank
