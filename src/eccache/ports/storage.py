"""Storage port: a place that keeps whole frames of bytes.

A store knows no tensors and verifies nothing; the engine does both, once, above all stores, so that
every tier is verified alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import attrs

from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame
from eccache.domain.outcomes import PutOutcome, RemoveReason


class ReadLease(Protocol):
    """The right to read one frame, unaffected by any later put, removal or eviction of its name.

    One thread at a time may use a lease. It is closed by whoever got it; a buffer that `view` returned
    stays valid for as long as something refers to it, also after `close`.
    """

    @property
    def nbytes(self) -> int:
        """Length of the frame in bytes when the lease was made."""
        ...

    def view(self) -> memoryview:
        """Return the whole frame as writable, private, 1-D bytes; without a copy where the store can.

        Raises:
            StoreFault: the bytes can't be had.
        """
        ...

    def read_into(self, target: memoryview, offset: int = 0) -> int:
        """Copy bytes from *offset* into *target* and return how many; fewer only at the frame's end.

        Unlike `view`, nothing done to the medium meanwhile can do worse than fewer or other bytes.
        Releases the GIL while it copies.

        Raises:
            StoreFault: the bytes can't be had.
        """
        ...

    def close(self) -> None:
        """Give the lease back. Idempotent, never raises."""
        ...


@attrs.frozen
class EntryInfo:
    """What a store knows of an entry without reading it.

    Attributes:
        namespace: fingerprint, 16 hex digits.
        name: `file_name` of its key, without the suffix.
        nbytes: what it occupies, in the store's own measure (for files: physical bytes).
        last_used_seconds: Unix time of last use, as coarse as the store keeps it; None if it does not.
    """

    namespace: str
    name: str
    nbytes: int
    last_used_seconds: float | None = None


@attrs.frozen
class StoreStats:
    """What a store holds and how much it may hold.

    Attributes:
        entries: number of entries; an estimate where counting would need a scan.
        nbytes: bytes occupied, in the measure of `capacity_nbytes`.
        capacity_nbytes: the cap; None without one.
        evictions: entries that this instance evicted.
        rejected: puts that this instance rejected.
        quarantined: entries that this instance took out of sight because they failed verification.
    """

    entries: int
    nbytes: int
    capacity_nbytes: int | None = None
    evictions: int = 0
    rejected: int = 0
    quarantined: int = 0


class EntryStore(Protocol):
    """A store of frames. Any number of threads may call it at once.

    A store that several processes open shows each what the others have published.
    """

    def contains(self, ref: EntryRef) -> bool:
        """Return whether something is stored under *ref*'s name: advisory, by name alone.

        Changes nothing: creates no directory, touches no recency. A fault is False; never raises.
        """
        ...

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Lease the frame stored under *ref*'s name, or None on a miss (the only meaning of None).

        Args:
            ref: its name counts; whether the frame is what *ref* means is for the caller to verify.
            deadline: monotonic seconds after which the answer is of no use; a store that can stop
                waiting does, one that can't may ignore it.

        Raises:
            StoreFault: the store could not tell, or could not read.
        """
        ...

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Store *frame* under *ref*'s name: visible whole or not at all, to everyone at once.

        A frame that is there already, is *ref*'s and has the same `spec` is kept (`ALREADY_PRESENT`);
        one that is damaged, another's or of another shape is replaced. The frame's bytes are no
        longer needed when this returns.

        Raises:
            StoreFault: it could not be stored; then nothing is visible and nothing is left behind.
        """
        ...

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Take what is stored under *ref*'s name out of sight; True if there was something.

        Leases that exist stay valid.

        Raises:
            StoreFault: it is there and could not be removed.
        """
        ...

    def entries(self) -> Iterator[EntryInfo]:
        """Yield every entry of every namespace, in no order; what changes meanwhile may be missed.

        An entry that can't be looked at is left out.
        """
        ...

    def stats(self) -> StoreStats:
        """Return what the store holds; cheap enough to be called every second; never raises."""
        ...

    def close(self) -> None:
        """Wait for accepted puts, then give everything back. Idempotent; leases stay valid."""
        ...
