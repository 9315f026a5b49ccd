"""Bytes between host and device, in chunks of pinned memory.

Memory that is not pinned the driver copies through pinned memory of its own, and whoever asked for the copy
waits for all of it. Here the chunks are ours: while the device copies one, the processor fills or empties
another, and nobody waits for a copy but the thread that needs its bytes. A ring has a few chunks, so what a
process pins is bounded, however large a tensor is.

There are two rules. A chunk is filled anew only when the copy that read it is done; it is read only when the
copy that filled it is done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import torch

CHUNK_NBYTES: Final = 4 << 20
"""A device copies it in 0.2 ms, twenty times what it takes to begin; it fits into a core's cache."""
CHUNKS: Final = 4


class Mark(Protocol):
    """A place in one of a device's queues: behind all that was queued there before."""

    def synchronize(self) -> None:
        """Wait until the device has come there. Releases the GIL."""
        ...


class CopyQueue(Protocol):
    """A device's queue of copies, carried out in order, beside what else the device does."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Mark:
        """Queue a copy between pinned memory and the device, and return the place behind it."""
        ...

    def here(self) -> Mark:
        """Return the place that the caller has come to in the queue of its own work."""
        ...

    def follow(self, mark: Mark) -> None:
        """Let copies that are queued from now on wait, on the device, for *mark*."""
        ...

    def lead(self, mark: Mark) -> None:
        """Let what the caller queues from now on wait, on the device, for *mark*."""
        ...


class Ring:
    """Chunks of pinned memory, used in turn, and a queue. One thread at a time.

    Args:
        queue: of the device.
        make_memory: returns pinned memory, 1-D uint8 of the given length.
    """

    def __init__(self, queue: CopyQueue, make_memory: Callable[[int], torch.Tensor]) -> None:
        memory = make_memory(CHUNKS * CHUNK_NBYTES)
        self._chunks: tuple[torch.Tensor, ...] = memory.split(CHUNK_NBYTES)
        self._marks: list[Mark | None] = [None] * CHUNKS
        self._queue = queue

    def upload(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy *source* into *target*: for whoever uses it in the caller's queue, from now on.

        Returns when the last bytes are in pinned memory, a little before they are on the device.

        Args:
            source: 1-D uint8 on the host; not needed any more afterwards.
            target: 1-D uint8 of the same length, from the device's allocator, in the caller's queue.
        """
        # The allocator may have handed out memory that the caller's queue has yet to finish with.
        self._queue.follow(self._queue.here())
        mark = None
        try:
            for number, (piece, place) in enumerate(
                zip(source.split(CHUNK_NBYTES), target.split(CHUNK_NBYTES), strict=True)
            ):
                chunk = self._free_chunk(number)[: piece.numel()]
                chunk.copy_(piece)
                mark = self._marks[number % CHUNKS] = self._queue.copy(place, chunk)
        finally:
            if mark is not None:
                self._queue.lead(mark)

    def download(self, source: torch.Tensor, ready: Mark) -> Generator[torch.Tensor, None, None]:
        """Yield the bytes of *source* in order, each piece valid until the next one is asked for.

        While a piece is with the reader, the next ones are on their way.

        Args:
            source: 1-D uint8 on the device. Stays until this is exhausted or closed.
            ready: where it is complete.
        """
        self._queue.follow(ready)
        pieces = source.split(CHUNK_NBYTES) if source.numel() else ()
        begun = 0
        try:
            for number, piece in enumerate(pieces):
                while begun < min(number + CHUNKS, len(pieces)):
                    chunk = self._free_chunk(begun)[: pieces[begun].numel()]
                    self._marks[begun % CHUNKS] = self._queue.copy(chunk, pieces[begun])
                    begun += 1
                yield self._free_chunk(number)[: piece.numel()]
        finally:
            for number in range(CHUNKS):  # a reader that stops half-way leaves copies under way
                self._free_chunk(number)

    def _free_chunk(self, number: int) -> torch.Tensor:
        """Return the chunk whose turn it is, once the device has nothing to do with it."""
        place = number % CHUNKS
        mark, self._marks[place] = self._marks[place], None
        if mark is not None:
            mark.synchronize()
        return self._chunks[place]


class Device:
    """What copies to and from one device. Any thread may call it.

    It lends a ring to each transfer; as many exist as ever ran at once.

    Args:
        make_queue: makes a queue of the device.
        make_memory: returns pinned memory, 1-D uint8 of the given length.
        here: returns the place that the calling thread has come to in the queue of its own work.
    """

    def __init__(
        self,
        make_queue: Callable[[], CopyQueue],
        make_memory: Callable[[int], torch.Tensor],
        here: Callable[[], Mark],
    ) -> None:
        self.here = here
        self._make_queue = make_queue
        self._make_memory = make_memory
        self._lock = threading.Lock()
        self._idle: list[Ring] = []

    @contextmanager
    def ring(self) -> Iterator[Ring]:
        """Lend a ring for the time of the block."""
        with self._lock:
            ring = self._idle.pop() if self._idle else None
        if ring is None:
            ring = Ring(self._make_queue(), self._make_memory)
        try:
            yield ring
        finally:
            with self._lock:
                self._idle.append(ring)
