"""Closes copies away from the scheduler's thread: giving 130 MB back takes 5 milliseconds."""

from __future__ import annotations

import queue
import threading
from typing import Final

from eccache.app.promises.promised_copy import PromisedCopy

_JOIN_SECONDS: Final = 1.0


class CopyCloser:
    """Closes copies on a daemon thread that starts with the first. Used by one thread.

    Separate from the threads that look up, because those can hang in a store, and closing must not wait
    for them.
    """

    def __init__(self) -> None:
        self._inbox: queue.SimpleQueue[PromisedCopy | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def dispose(self, copy: PromisedCopy) -> None:
        """Close *copy*, soon; at once after `close`, or where the system has no more threads."""
        if self._closed or not self._running():
            copy.close()
        else:
            self._inbox.put(copy)

    def close(self) -> None:
        """Close what was given so far, and end the thread. Idempotent."""
        self._closed = True
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join(_JOIN_SECONDS)

    def _running(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="eccache-lookup-closer", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while (copy := self._inbox.get()) is not None:
            copy.close()
