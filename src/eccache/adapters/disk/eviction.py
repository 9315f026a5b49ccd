"""Eviction: the least recently used entries go, found by sampling.

Shards are drawn with a chance in proportion to their bytes, and their entries compete with the oldest
that were seen in earlier rounds. So a round costs the same whatever the number of entries, and the
order comes close to exact (`bench/` measures by how much).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from eccache.adapters.disk.accounting import Accounting, Found, Usage, nbytes_of
from eccache.adapters.disk.layout import SHARDS, physical_nbytes
from eccache.adapters.disk.recency import Recency
from eccache.ports.file_operations import FileOperations
from eccache.ports.telemetry import Telemetry

_MAX_SHARDS: Final = 16
"""Directories that a round looks into at the most."""
_SAMPLE: Final = 32
"""Entries that are enough for a round."""
_POOL: Final = 64
"""Candidates that are remembered from round to round."""
_SHARE: Final = 16
"""Of a sample at the most one in so many is evicted: the rest may be younger than others unseen."""
_FRUITLESS_ROUNDS: Final = 8


class _Candidate(NamedTuple):
    """An entry that may go; in order, the first goes first. A tuple, since a round makes hundreds."""

    rank: int
    path: str
    shard: int
    modified_ns: int
    nbytes: int


class Evictor:
    """Makes room. One thread at a time.

    Args:
        files: file operations.
        accounting: says which shards are worth looking at.
        recency: says who goes first.
        rng: draws shards.
        telemetry: counts `evictions`.
    """

    def __init__(
        self,
        files: FileOperations,
        accounting: Accounting,
        recency: Recency,
        rng: random.Random,
        telemetry: Telemetry,
    ) -> None:
        self._files = files
        self._accounting = accounting
        self._recency = recency
        self._rng = rng
        self._telemetry = telemetry
        self._pool: list[_Candidate] = []
        self._credit = 0
        self.evictions = 0

    def free(self, nbytes: int) -> int:
        """Evict until *nbytes* are free, or nothing more can be evicted; return how many are.

        Raises:
            OSError: it can't be told what is there.
        """
        freed = fruitless = 0
        while freed < nbytes and fruitless < _FRUITLESS_ROUNDS:
            freed_now = self._round(nbytes - freed)
            if freed_now is None:
                break
            freed += freed_now
            fruitless = 0 if freed_now else fruitless + 1
        return freed

    def _round(self, nbytes: int) -> int | None:
        """Evict some of the oldest of a sample; None where nothing is stored."""
        if self._credit <= 0:
            usage = self._accounting.usage()
            if not any(usage.nbytes):
                return None
            self._sample(usage)
        freed = seen = 0
        for candidate in self._pool:
            if freed >= nbytes or self._credit <= 0:
                break
            seen += 1
            if self._evict(candidate):
                self._credit -= 1
                freed += candidate.nbytes
                self._accounting.charge(candidate.shard, -candidate.nbytes, -1)
        del self._pool[:seen]
        if not self._pool:
            self._credit = 0
        return freed

    def _sample(self, usage: Usage) -> None:
        """Look into some shards, put right what is wrong in their numbers, and let their entries compete."""
        names = self._accounting.namespaces()
        sample: list[_Candidate] = []
        for shard in self._drawn(usage):
            found = self._accounting.look(shard, names)
            if (nbytes_of(found), len(found)) != (usage.nbytes[shard], usage.entries[shard]):
                self._accounting.chart(shard, found)
            sample += self._candidates(shard, found)
            if len(sample) > _SAMPLE:
                break
        rivals = {candidate.path: candidate for candidate in self._pool + sample}
        self._pool = sorted(rivals.values())[: max(_POOL, len(sample) // _SHARE)]
        self._credit = max(1, len(sample) // _SHARE)

    def _drawn(self, usage: Usage) -> Iterable[int]:
        """Return the shards to look into; in a store of few entries all that have any."""
        if sum(usage.entries) <= _SAMPLE:
            return [shard for shard, nbytes in enumerate(usage.nbytes) if nbytes]
        return dict.fromkeys(self._rng.choices(range(SHARDS), usage.nbytes, k=_MAX_SHARDS))

    def _candidates(self, shard: int, found: list[Found]) -> list[_Candidate]:
        rank = self._recency.ranking()
        return [
            _Candidate(
                rank(status.st_mtime_ns),
                path,
                shard,
                status.st_mtime_ns,
                physical_nbytes(status),
            )
            for path, status in found
        ]

    def _evict(self, candidate: _Candidate) -> bool:
        """Evict *candidate* unless it was used since it was seen; what can't be deleted is stepped over."""
        try:
            if self._files.status(candidate.path).st_mtime_ns != candidate.modified_ns:
                return False
            self._files.unlink(candidate.path)
        except OSError:
            return False
        self.evictions += 1
        self._telemetry.count("evictions")
        return True
