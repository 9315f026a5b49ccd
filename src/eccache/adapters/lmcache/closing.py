"""Closing a storage manager so that it closes, and the process can end.

Left alone, LMCache's Redis connectors wait in `close` for their own event loop, and nothing after that
happens; and a thread of an arena that is freed under a late write ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eccache.adapters.lmcache.remote_backend import innermost

if TYPE_CHECKING:
    from lmcache.v1.storage_backend.storage_manager import StorageManager


def close_storage(
    storage: StorageManager, *, timeout_seconds: float, is_idle: Callable[[], bool]
) -> bool:
    """Close *storage*; True if it closed.

    Where calls are still under way, or LMCache does not come back, its loop is stopped and its memory left
    alone: a buffer that somebody may still write to is not freed.

    Args:
        storage: the storage manager.
        timeout_seconds: how long to wait for it.
        is_idle: whether nothing is under way in it.
    """
    for backend in storage.storage_backends.values():
        _let_executor_close(innermost(getattr(backend, "connection", None)))
    idle = is_idle()
    closed = _in_time(_close if idle else _abandon, storage, timeout_seconds)
    if not closed:
        _stop_loop(storage)
    return closed and idle


def _in_time(
    function: Callable[[StorageManager], None], storage: StorageManager, timeout_seconds: float
) -> bool:
    thread = threading.Thread(
        target=function, args=(storage,), name="eccache-lmcache-close", daemon=True
    )
    thread.start()
    thread.join(timeout_seconds)
    return not thread.is_alive()


def _close(storage: StorageManager) -> None:
    storage.close()
    if not storage.thread.is_alive():
        _finish_loop(storage.loop)


def _abandon(storage: StorageManager) -> None:
    """End what is under way, now that nobody comes after it, and leave the rest."""
    _stop_loop(storage)
    storage.thread.join()
    _finish_loop(storage.loop)


def _finish_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop that has stopped, and what LMCache leaves open on it: tasks, sockets, threads."""

    async def end_tasks() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(end_tasks())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def _let_executor_close(connector: Any) -> None:  # noqa: ANN401 - as `innermost`
    """Make the connector's executor shut down without waiting for the loop that it is called on."""
    executor: Any = getattr(connector, "pq_executor", None)
    if hasattr(executor, "shutdown_async"):
        executor.shutdown = lambda wait=True: executor.shutdown_async(wait=False)  # noqa: ARG005 - as the original's


def _stop_loop(storage: StorageManager) -> None:
    with contextlib.suppress(RuntimeError):  # closed already
        storage.loop.call_soon_threadsafe(storage.loop.stop)
