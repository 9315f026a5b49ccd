"""Calls that may never return, made by threads that may be lost.

A file system can hang for ever in `open`, `stat` or `read`, and no thread can be interrupted there. So
the call is made by a daemon thread, and the caller waits for as long as it wants to. A hand-over and
back takes 6 microseconds. Threads that hang are replaced, up to a bound; at the bound calls fail at
once, until one of the lost comes back: the circuit is open for exactly as long as it should be.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from eccache.domain.errors import StoreTimeout

R = TypeVar("R")
MAX_LOST_THREADS: Final = 8


class _Call(Generic[R]):
    """One call: what to do, and what came of it. Exactly one side takes the result."""

    def __init__(self, function: Callable[[], R], discard: Callable[[R], None]) -> None:
        self.function = function
        self.discard = discard
        self.done = threading.Lock()
        self.done.acquire()
        self.decided = threading.Lock()
        self.result: list[R] = []
        self.error: BaseException | None = None

    def run(self) -> bool:
        """Make the call; False if the caller no longer waited for it."""
        try:
            self.result.append(self.function())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who is in another thread
            self.error = error
        if self.decided.acquire(blocking=False):
            self.done.release()
            return True
        for late in self.result:
            self.discard(late)
        return False


class BoundedCalls:
    """Makes calls with a time limit. Any thread may call it.

    Args:
        name: of the threads, e.g. `"eccache-store"`.
        max_lost: how many threads may hang before calls fail at once.
    """

    def __init__(self, name: str, max_lost: int = MAX_LOST_THREADS) -> None:
        self._name = name
        self._max_lost = max_lost
        self._lock = threading.RLock()  # a signal's handler may close what its thread is using
        self._idle: list[queue.SimpleQueue[_Call[Any] | None]] = []
        self._lost = 0
        self._closed = False

    @property
    def lost(self) -> int:
        """Number of threads that hang now."""
        return self._lost

    def call(
        self,
        function: Callable[[], R],
        timeout_seconds: float,
        *,
        discard: Callable[[R], None] = lambda _: None,
    ) -> R:
        """Return what *function* returns, or raise what it raises.

        Args:
            function: runs in another thread.
            timeout_seconds: how long to wait.
            discard: is given a result that comes too late, to close it.

        Raises:
            StoreTimeout: no answer in time, or too many threads hang already.
        """
        if self._lost >= self._max_lost:
            msg = f"{self._lost} earlier calls still hang"
            raise StoreTimeout(msg)
        call = _Call(function, discard)
        inbox = self._inbox()
        try:
            inbox.put(call)
            call.done.acquire(timeout=timeout_seconds)
        finally:  # also where the handler of a signal raised: the thread must not be forgotten
            answered = not call.decided.acquire(blocking=False)
            if answered:
                self._give_back(inbox)
            else:
                self._count_as_lost(inbox, call)
        if not answered:
            msg = f"no answer within {timeout_seconds:g} s"
            raise StoreTimeout(msg)
        if call.error is not None:
            raise call.error
        return call.result[0]

    def close(self) -> None:
        """End the idle threads; those that hang end when they can. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _inbox(self) -> queue.SimpleQueue[_Call[Any] | None]:
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        inbox: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name=self._name, daemon=True).start()
        return inbox

    def _give_back(self, inbox: queue.SimpleQueue[_Call[Any] | None]) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(inbox)
                return
        inbox.put(None)

    def _count_as_lost(self, inbox: queue.SimpleQueue[_Call[Any] | None], call: _Call[Any]) -> None:
        """Leave a thread to itself: it ends once it is done with *call*, of which it may not know yet."""
        with self._lock:
            self._lost += 1
        inbox.put(call)

    def _serve(self, inbox: queue.SimpleQueue[_Call[Any] | None]) -> None:
        while (call := inbox.get()) is not None:
            waited_for = call.run()
            del call  # or its result, perhaps 130 MB, would be kept until the next call
            if not waited_for:
                with self._lock:
                    self._lost -= 1
                return
