"""Promised copies: made in the background, loaded by a worker."""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import threading
import time
from collections.abc import Iterator

import xxhash

from bench.contest import Contender, compete
from bench.micro import ours
from bench.rows import Row, at_most_times, beside, within
from bench.setting import Setting
from bench.sizes import EntrySize

COPY_FACTOR = 1.2
STALL_SECONDS = 1e-3
LOAD_SECONDS = 20e-3


def rows(setting: Setting) -> Iterator[Row]:
    """Measure a promised copy and its load, of every size."""
    for size in setting.sizes:
        yield from _copy_and_load(setting, size)
    yield _stall(setting, setting.largest)


class Promises:
    """The look-up of one stored entry, without threads: what a thread of the scheduler's process does."""

    def __init__(self, setting: Setting, size: EntrySize) -> None:
        from eccache.adapters.memfd import MemfdCopies
        from eccache.adapters.system import SystemClock
        from eccache.adapters.system.mapping import map_private
        from eccache.adapters.torch import TorchFramework
        from eccache.app.promises.lookup import EntryLookup
        from eccache.app.promises.lookup_job import LookupJob
        from eccache.app.promises.promised_copy import CopyBudget, PromisedCopy
        from eccache.app.telemetry import LocalTelemetry
        from eccache.app.worker import CacheWorker
        from eccache.ports.lookup import PromisedLoad

        self.cache = ours.opened(setting.folder / f"promise-{size.rows}")
        ours.stored(self.cache, "id", size.tensor())
        clock = SystemClock()
        telemetry = LocalTelemetry(clock)
        copies = MemfdCopies(map_private)
        budget = CopyBudget(8 << 30, 64, telemetry)
        lookup = EntryLookup(self.cache._parts.store, copies, budget, clock, telemetry)
        ref = self.cache.ref("id")
        worker = CacheWorker(
            copies=copies,
            host=TorchFramework(),
            put=lambda permitted, tensor: self.cache.put(permitted.mm_hash, tensor),
            close=lambda: None,
            clock=clock,
            telemetry=telemetry,
        )

        def copy() -> PromisedCopy:
            found = lookup(LookupJob("id", ref, deadline=1e18, started=0.0))
            if not isinstance(found, PromisedCopy):
                raise TypeError(f"the look-up came to {found}")
            return found

        self.copy = copy

        def load(promised: PromisedCopy) -> object:
            order = PromisedLoad("id", 1, promised.pid, promised.fd, promised.nbytes)
            tensor = worker.load([order], "cpu")["id"]
            worker.take_report()
            return tensor

        self.load = load

    def close(self) -> None:
        """Close the cache."""
        self.cache.close()


def _copy_and_load(setting: Setting, size: EntrySize) -> Iterator[Row]:
    from eccache.adapters.torch.memory import bytes_of

    tensor = size.tensor()
    data = bytes_of(tensor)
    libc = ctypes.CDLL(None)
    held = []

    def copy_and_hash() -> object:
        # Fresh pages, as the copy's are; `clone` may get pages that torch has used before.
        import torch

        fresh = torch.empty_like(tensor)
        fresh.copy_(tensor)
        xxhash.xxh3_128_digest(bytes_of(fresh))
        return fresh

    def trim() -> None:
        libc.malloc_trim(0)

    with contextlib.closing(Promises(setting, size)) as promises:
        held.append(promises.copy())

        def first_touch() -> object:
            loaded = promises.load(held[0])
            return loaded, loaded.view(-1)[:: 4096 // 2].sum()  # type: ignore[attr-defined]

        def make() -> object:
            held.append(promises.copy())
            return None

        def close() -> None:
            held.pop().close()

        samples = compete(
            [
                Contender("promised copy", make, after=close),
                Contender("fresh copy + XXH3", copy_and_hash, before=trim),
                Contender("load", lambda: promises.load(held[0])),
                Contender("load + first touch", first_touch),
                Contender("torch.clone", tensor.clone, before=trim),
            ],
            setting.rounds(size.rounds),
        )
        held.pop().close()
    _ = data
    name = "promised copy, verified, in the background"
    if size.nbytes > 64 << 20:
        yield at_most_times(
            samples,
            "promised copy",
            "fresh copy + XXH3",
            operation=name,
            size=size.label,
            times=COPY_FACTOR,
        )
        yield within(
            samples,
            "load + first touch",
            operation="worker's load of a promised copy, first touch included",
            size=size.label,
            at_most_seconds=LOAD_SECONDS,
        )
    else:
        yield beside(samples, "promised copy", "fresh copy + XXH3", operation=name, size=size.label)
    for what in ("load", "load + first touch"):
        yield beside(
            samples,
            what,
            "torch.clone",
            operation=f"worker's {what} of a promised copy",
            size=size.label,
        )


def _stall(setting: Setting, size: EntrySize) -> Row:
    """Measure the longest pause of a thread that never waits, while another makes a promised copy."""
    longest: list[float] = []
    alone: list[float] = []
    with contextlib.closing(Promises(setting, size)) as promises:
        for _ in range(setting.rounds(size.rounds)):
            done = threading.Event()

            def look_up(done: threading.Event = done) -> None:
                promises.copy().close()
                done.set()

            thread = threading.Thread(target=look_up)
            begin = time.perf_counter()
            thread.start()
            longest.append(_longest_pause(done.is_set))
            seconds = time.perf_counter() - begin
            thread.join()
            end = time.perf_counter() + seconds
            alone.append(_longest_pause(lambda end=end: time.perf_counter() > end))
    return Row(
        operation="scheduler's longest pause during a promised copy",
        size=size.label,
        target="<= 1 ms",
        measured=statistics.median(longest),
        peer="the same time without a copy",
        peer_measured=statistics.median(alone),
        ratio=statistics.median(longest) / statistics.median(alone),
        met=statistics.median(longest) <= STALL_SECONDS,
        used=statistics.median(longest) / STALL_SECONDS,
    )


def _longest_pause(done: object) -> float:
    longest = 0.0
    last = time.perf_counter()
    while not done():  # type: ignore[operator]
        now = time.perf_counter()
        longest = max(longest, now - last)
        last = now
    return longest
