"""Calls on LMCache's event loop, waited for with a time limit.

A call that takes too long is left alone, never cancelled: LMCache's Redis workers die of a cancelled
call, one each, and the connector with the last of them. What comes too late is thrown away when it
comes. At a bound on unanswered calls new ones fail at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from eccache.adapters.lmcache.buffers import give_back, give_back_lost
from eccache.domain.errors import StoreFault, StoreTimeout

R = TypeVar("R")
MAX_UNANSWERED: Final = 4


class LoopCalls:
    """Makes calls on one event loop, from any thread but the loop's.

    Args:
        loop: LMCache's, running in a thread of its own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._unanswered = 0
        self.buffers_recovered = 0

    @property
    def unanswered(self) -> int:
        """Calls that were given up and have not come back."""
        return self._unanswered

    def call(self, make: Callable[[], Coroutine[Any, Any, R]], timeout_seconds: float) -> R:
        """Return what the coroutine that *make* makes returns.

        Raises:
            StoreTimeout: it took longer than *timeout_seconds*, or too many calls hang already.
            StoreFault: it raised.
        """
        self._require_answers()
        coroutine = make()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:
            coroutine.close()
            raise StoreFault(f"LMCache's event loop is gone: {error}") from error
        return self.result_of(future, timeout_seconds)

    def result_of(self, future: Future[R], timeout_seconds: float) -> R:
        """Return the result of a call that LMCache has put on its loop.

        Raises:
            StoreTimeout: as `call`.
            StoreFault: as `call`.
        """
        try:
            return future.result(max(0.0, timeout_seconds))
        except TimeoutError as error:
            if not future.done():
                self._give_up(future)
                raise StoreTimeout(f"LMCache did not answer in {timeout_seconds:.3g} s") from None
            raise self._fault(error) from None
        except Exception as error:  # noqa: BLE001 - a connector may raise anything
            raise self._fault(error) from None

    def _require_answers(self) -> None:
        if self._unanswered >= MAX_UNANSWERED:
            raise StoreTimeout(f"{self._unanswered} earlier calls of LMCache are unanswered")

    def _give_up(self, future: Future[R]) -> None:
        with self._lock:
            self._unanswered += 1
        future.add_done_callback(self._came_back)

    def _came_back(self, future: Future[Any]) -> None:
        with self._lock:
            self._unanswered -= 1
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            give_back(future.result())
        else:
            self._fault(error)

    def _fault(self, error: BaseException) -> StoreFault:
        """Return *error* as a fault, without what its traceback keeps alive."""
        recovered = give_back_lost(error)
        with self._lock:
            self.buffers_recovered += recovered
        return StoreFault(f"{type(error).__name__}: {error}"[:500])
