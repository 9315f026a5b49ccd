"""Calls on an event loop are waited for, bounded, and never cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from eccache.adapters.lmcache.loop_calls import MAX_UNANSWERED, LoopCalls
from eccache.adapters.lmcache.opening import with_timeouts
from eccache.domain.errors import StoreFault, StoreTimeout

SOON = 0.01
LONG = 30.0


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Slow:
    """A coroutine that waits until it may go on, and knows what became of it."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.ended: list[str] = []

    async def __call__(self) -> str:
        """Wait."""
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("returned")
        return "late"


def let_end(loop: asyncio.AbstractEventLoop, slow: Slow) -> None:
    """Let *slow* go on, and wait until the loop has been through it."""
    loop.call_soon_threadsafe(slow.may_end.set)
    for _ in range(5):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()


def test_a_call_returns_what_the_coroutine_returns(loop: asyncio.AbstractEventLoop) -> None:
    """In time, its result."""

    async def quick() -> int:
        return 7

    assert 7 == LoopCalls(loop).call(quick, LONG)


def test_what_a_coroutine_raises_is_a_fault(loop: asyncio.AbstractEventLoop) -> None:
    """Whatever it is, also a time limit of its own; and the traceback keeps nothing alive."""

    async def broken() -> None:
        raise TimeoutError("mine")

    with pytest.raises(StoreFault, match="TimeoutError: mine") as caught:
        LoopCalls(loop).call(broken, LONG)
    assert not isinstance(caught.value, StoreTimeout)
    assert caught.value.__cause__ is None


def test_a_call_that_is_given_up_goes_on(loop: asyncio.AbstractEventLoop) -> None:
    """It is not cancelled, and once it has come back it is no longer counted."""
    calls, slow = LoopCalls(loop), Slow()
    with pytest.raises(StoreTimeout):
        calls.call(slow, SOON)
    assert 1 == calls.unanswered
    let_end(loop, slow)
    assert ["returned"] == slow.ended
    assert 0 == calls.unanswered


def test_unanswered_calls_are_bounded(loop: asyncio.AbstractEventLoop) -> None:
    """At the bound, calls fail at once without being made, until one has come back."""
    calls, slow = LoopCalls(loop), Slow()
    for _ in range(MAX_UNANSWERED):
        with pytest.raises(StoreTimeout, match="did not answer"):
            calls.call(slow, SOON)

    def not_made() -> None:
        pytest.fail("a call was made")

    with pytest.raises(StoreTimeout, match="earlier calls"):
        calls.call(not_made, LONG)  # type: ignore[arg-type]
    let_end(loop, slow)

    async def quick() -> int:
        return 7

    assert 7 == calls.call(quick, LONG)


def test_a_loop_that_is_gone_is_a_fault() -> None:
    """After `close`, nothing is left half-made."""
    loop = asyncio.new_event_loop()
    loop.close()

    async def quick() -> int:
        return 7

    with pytest.raises(StoreFault, match="event loop is gone"):
        LoopCalls(loop).call(quick, LONG)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:1", "redis://h:1?socket_timeout=5&socket_connect_timeout=5"),
        (
            "rediss://u:p@h:1/2?ssl_cert_reqs=none",
            "rediss://u:p@h:1/2?ssl_cert_reqs=none&socket_timeout=5&socket_connect_timeout=5",
        ),
        (
            "redis://h:1?socket_timeout=1",
            "redis://h:1?socket_timeout=1&socket_connect_timeout=5",
        ),
        (
            "redis://h:1?socket_timeout=1&socket_connect_timeout=2",
            "redis://h:1?socket_timeout=1&socket_connect_timeout=2",
        ),
        ("unix:///run/r.sock", "unix:///run/r.sock?socket_timeout=5&socket_connect_timeout=5"),
        ("redis://#x", "redis://?socket_timeout=5&socket_connect_timeout=5#x"),
        ("fs://h:0/x", "fs://h:0/x"),
        ("s3://bucket", "s3://bucket"),
    ],
)
def test_a_redis_url_has_time_limits(url: str, expected: str) -> None:
    """Without, a frozen Redis would hold LMCache's four workers for ever; the user's own limits stay."""
    assert expected == with_timeouts(url, 5.0)
