"""What a cache has done and holds, as its user sees it."""

from __future__ import annotations

import attrs


@attrs.frozen
class CacheStats:
    """Counts of one engine since it was opened, and what its store holds now.

    Every get has exactly one outcome: `gets = hits + misses + corrupt + errors + timeouts`.

    Attributes:
        hits: gets answered with a tensor.
        misses: gets that found nothing, another input's entry, or one with another number of rows.
        puts: puts that were accepted; each becomes stored, already present, rejected or failed.
        rejected: puts that the store refuses for good, e.g. larger than the cap.
        corrupt: gets that found a damaged entry, which was then quarantined.
        errors: gets that failed in the store.
        timeouts: gets that the store did not answer in time.
        evictions: entries that this engine's store evicted to make room.
        bytes_read: bytes of payload returned by hits.
        bytes_written: bytes of frames stored.
        entries: entries in the store, of all namespaces; an estimate where counting would need a scan.
        bytes_stored: bytes that they occupy.
        stored: puts that became a new entry.
        already_present: puts that found the same entry there.
        failed_puts: puts that the store could not carry out, or whose borrowed tensor changed.
    """

    hits: int
    misses: int
    puts: int
    rejected: int
    corrupt: int
    errors: int
    timeouts: int
    evictions: int
    bytes_read: int
    bytes_written: int
    entries: int
    bytes_stored: int
    stored: int
    already_present: int
    failed_puts: int
