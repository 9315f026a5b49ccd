"""What is under way in a store, so that closing it can wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from eccache.domain.errors import StoreFault


class Operations:
    """Counts operations and refuses new ones once closed. Any thread may call it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """Operations under way."""
        return self._count

    @property
    def closed(self) -> bool:
        """Whether new ones are refused."""
        return self._closed

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """Count one operation while the context lasts.

        Raises:
            StoreFault: closed.
        """
        with self._changed:
            if self._closed:
                msg = "the store is closed"
                raise StoreFault(msg)
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def close(self, timeout_seconds: float) -> bool:
        """Refuse new operations and wait for those under way; True for the first caller."""
        with self._changed:
            first, self._closed = not self._closed, True
            self._changed.wait_for(lambda: self._count == 0, timeout_seconds)
            return first
