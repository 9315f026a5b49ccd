"""Locks by key: one thread at a time does something to one entry."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Final

_LOCKS: Final = 64


class KeyLocks:
    """A fixed number of locks, shared out over any number of keys."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def of(self, key: Hashable) -> threading.Lock:
        """Return the lock of *key*; two keys may have one."""
        return self._locks[hash(key) % _LOCKS]
