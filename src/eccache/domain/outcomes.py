"""Honest outcomes: an enum wherever there is a why."""

from __future__ import annotations

import enum


class PutOutcome(enum.Enum):
    """What became of a put that did not fail."""

    STORED = "stored"
    ALREADY_PRESENT = "already_present"
    REJECTED = "rejected"
    """The store's policy said no, e.g. the entry is larger than the cap. Asking again changes nothing."""


class RemoveReason(enum.Enum):
    """Why an entry leaves a store."""

    REMOVED = "removed"
    """The caller decided."""
    QUARANTINED = "quarantined"
    """It failed verification."""
    EVICTED = "evicted"
    """The cache decided, to make room."""


class LookupOutcome(enum.Enum):
    """What became of a get. Every get has exactly one."""

    HIT = "hits"
    MISS = "misses"
    CORRUPT = "corrupt"
    ERROR = "errors"
    TIMEOUT = "timeouts"
