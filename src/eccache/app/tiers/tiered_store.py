"""Stores behind one another: the local one first, then the remote ones.

The same framed bytes everywhere. A remote hit is verified, served, and copied into the local store; what
is stored locally is copied to the remote tiers. Both happen in the background, from bytes that nobody
changes: a private mapping of what the local store has, not the caller's buffer.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence

from eccache.app.guard import CAUSE_CHARACTERS, guarded
from eccache.app.tiers.remote_tier import RemoteTier
from eccache.app.writer import BackgroundWriter
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.frame import Frame, SealedFrame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.storage import EntryInfo, EntryStore, ReadLease, StoreStats
from eccache.ports.telemetry import Level, Telemetry

MAX_PENDING_COPIES = 64


class MemoryLease:
    """A lease on bytes in memory. Implements `ports.storage.ReadLease`."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame

    @property
    def nbytes(self) -> int:
        """Length of the frame."""
        return self._frame.nbytes

    def view(self) -> memoryview:
        """Return the bytes."""
        return self._frame

    def read_into(self, target: memoryview, offset: int = 0) -> int:
        """Copy from *offset* on, without the GIL, which a copy between memoryviews would hold."""
        nbytes = max(0, min(target.nbytes, self.nbytes - offset))
        if nbytes:
            source = (ctypes.c_ubyte * nbytes).from_buffer(self._frame, offset)
            ctypes.memmove((ctypes.c_ubyte * nbytes).from_buffer(target), source, nbytes)
        return nbytes

    def close(self) -> None:
        """Do nothing: the bytes live as long as something refers to them."""


class TieredStore:
    """Implements `ports.storage.EntryStore` over a local store and remote tiers.

    Args:
        local: asked first, closed with this.
        remotes: asked in order, each safe to ask; closed with this.
        telemetry: counts copies that were left out.
        close_timeout_seconds: `close` gives up on copies that make no progress for this long.
        max_held_nbytes: bytes of all frames that wait in memory to be copied; one alone may be larger.
    """

    def __init__(
        self,
        local: EntryStore,
        remotes: Sequence[RemoteTier],
        *,
        telemetry: Telemetry,
        close_timeout_seconds: float,
        max_held_nbytes: int = 1 << 30,
    ) -> None:
        self.local = local
        self.remotes = tuple(remotes)
        self._telemetry = telemetry
        self._close_timeout_seconds = close_timeout_seconds
        self._max_held_nbytes = max_held_nbytes
        self._held_nbytes = 0
        self._holding = threading.Lock()
        self._copier = BackgroundWriter(1, lambda: None)

    def contains(self, ref: EntryRef) -> bool:
        """Return whether the local store or, as far as can be told, a remote tier has it."""
        return self.local.contains(ref) or any(remote.contains(ref) for remote in self.remotes)

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Lease from the local store, else from the first remote tier that has it.

        Raises:
            StoreFault: the local store could not tell; remote tiers never raise.
        """
        lease = self.local.get(ref, deadline=deadline)
        if lease is not None:
            return lease
        for remote in self.remotes:
            frame = remote.fetch(ref, deadline=deadline)
            if frame is not None:
                self._copy(functools.partial(self._fill_local, ref, frame), frame.nbytes)
                return MemoryLease(frame)
        return None

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Store locally, then copy to the remote tiers in the background.

        Raises:
            StoreFault: the local store could not store it.
        """
        outcome = self.local.put(ref, frame)
        if outcome is not PutOutcome.ALREADY_PRESENT:
            rejected = _whole(frame) if outcome is PutOutcome.REJECTED else None
            for remote in self.remotes:
                held = 0 if rejected is None else rejected.nbytes
                self._copy(functools.partial(self._fill_remote, remote, ref, rejected), held)
        return outcome

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Remove locally; what the caller decided to remove also from the remote tiers.

        Raises:
            StoreFault: it is there and could not be removed.
        """
        removed = self.local.remove(ref, reason)
        if reason is RemoveReason.REMOVED:
            for remote in self.remotes:
                removed |= remote.remove(ref, reason)
        return removed

    def entries(self) -> Iterator[EntryInfo]:
        """Yield the local store's entries; remote tiers can't list theirs."""
        return self.local.entries()

    def stats(self) -> StoreStats:
        """Return what the local store holds."""
        return self.local.stats()

    def close(self) -> None:
        """Wait for copies for as long as they make progress, then close every tier."""
        self._copier.close(self._close_timeout_seconds)
        for remote in self.remotes:
            remote.close()
        self.local.close()

    def _copy(self, copy: Callable[[], bool], held_nbytes: int) -> None:
        """Make *copy* in the background, which holds *held_nbytes* of memory until then; or leave it out."""
        if self._copier.pending < MAX_PENDING_COPIES and self._hold(held_nbytes):
            if self._copier.submit(functools.partial(self._copied, copy, held_nbytes)):
                return
            self._let_go(held_nbytes)
        self._telemetry.count("copies_left_out")

    def _copied(self, copy: Callable[[], bool], held_nbytes: int) -> bool:
        well = guarded(
            self._telemetry, "tiers", functools.partial(self._made, copy), otherwise=False
        )
        self._let_go(held_nbytes)
        return well

    def _made(self, copy: Callable[[], bool]) -> bool:
        """Make *copy*; False, a count and a warning, if the local store could not do its part."""
        try:
            return copy()
        except StoreFault as fault:
            self._telemetry.count("copies_left_out")
            self._telemetry.event(
                Level.WARNING, "tiers.copy.failed", cause=str(fault)[:CAUSE_CHARACTERS]
            )
            return False

    def _hold(self, nbytes: int) -> bool:
        with self._holding:
            if self._held_nbytes and self._held_nbytes + nbytes > self._max_held_nbytes:
                return False
            self._held_nbytes += nbytes
            return True

    def _let_go(self, nbytes: int) -> None:
        with self._holding:
            self._held_nbytes -= nbytes

    def _fill_local(self, ref: EntryRef, frame: memoryview) -> bool:
        return self.local.put(ref, SealedFrame(frame)) is not PutOutcome.REJECTED

    def _fill_remote(self, remote: RemoteTier, ref: EntryRef, frame: memoryview | None) -> bool:
        if frame is None:
            lease = self.local.get(ref)
            if lease is None:
                return False  # evicted already: not worth a remote's room either
            try:
                frame = lease.view()
            finally:
                lease.close()
        return remote.put(ref, SealedFrame(frame))


def _whole(frame: Frame) -> memoryview:
    """Return *frame*'s bytes in memory of their own."""
    buffer = bytearray(frame.nbytes)
    for offset, piece in frame.pieces():
        buffer[offset : offset + piece.nbytes] = piece
    return memoryview(buffer)
