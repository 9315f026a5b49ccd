"""Verification, in one place above all stores."""

from __future__ import annotations

import contextlib

import attrs

from eccache.domain.entry_format import EntryHeader, FrameError, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault, StoreTimeout
from eccache.domain.outcomes import LookupOutcome, RemoveReason
from eccache.ports.storage import EntryStore


@attrs.frozen
class Reading:
    """What a read came to.

    Attributes:
        outcome: `HIT` exactly where the other two are there.
        header: the entry's verified header.
        payload: the tensor's bytes, private and writable.
    """

    outcome: LookupOutcome
    header: EntryHeader | None = None
    payload: memoryview | None = None


def read_verified(store: EntryStore, ref: EntryRef, *, deadline: float | None = None) -> Reading:
    """Read the entry of *ref* and verify all of it: integrity first, then identity.

    An entry that fails verification is quarantined, where the store can. One that is whole but another's
    (an equal 64-bit hash, a file renamed by hand) or of another format version is a plain miss and stays.

    Raises:
        StoreFault: the store could not tell or could not read.
    """
    lease = store.get(ref, deadline=deadline)
    if lease is None:
        return Reading(LookupOutcome.MISS)
    try:
        frame = lease.view()
    finally:
        lease.close()
    try:
        return verified(frame, ref)
    except FrameError as error:
        if not error.fault.is_damage:
            return Reading(LookupOutcome.MISS)
        with contextlib.suppress(StoreFault):  # e.g. mounted read-only; it is corrupt all the same
            store.remove(ref, RemoveReason.QUARANTINED)
        return Reading(LookupOutcome.CORRUPT)


def verified(frame: memoryview, ref: EntryRef) -> Reading:
    """Return the hit that *frame* is, integrity first, then identity.

    Raises:
        FrameError: it is none.
    """
    header = open_verified(frame, ref)
    return Reading(LookupOutcome.HIT, header, frame[header.block_nbytes :])


def fault_outcome(fault: StoreFault) -> LookupOutcome:
    """Return what a get comes to when the store fails: time and error are told apart."""
    return LookupOutcome.TIMEOUT if isinstance(fault, StoreTimeout) else LookupOutcome.ERROR
