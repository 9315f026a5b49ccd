"""Policies of admission and eviction, in memory: which of them saves the encoder most.

Each is told of every use and keeps a set of inputs within a number of bytes.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from bench.replay.traces import Input, Trace


class Policy(Protocol):
    """A cache."""

    def use(self, used: Input, seconds: float) -> bool:
        """Use *used*; True if it was there. What was not there may be there from now on."""
        ...


class Lru:
    """The least recently used goes: what the store approximates."""

    def __init__(self, capacity_nbytes: int) -> None:
        self._capacity_nbytes = capacity_nbytes
        self._kept: OrderedDict[Input, None] = OrderedDict()
        self._nbytes = 0

    def use(self, used: Input, seconds: float) -> bool:  # noqa: ARG002 - the order is enough
        """Use *used*."""
        if used in self._kept:
            self._kept.move_to_end(used)
            return True
        if used.nbytes > self._capacity_nbytes:
            return False
        self._kept[used] = None
        self._nbytes += used.nbytes
        while self._nbytes > self._capacity_nbytes:
            gone, _ = self._kept.popitem(last=False)
            self._nbytes -= gone.nbytes
        return False


class SecondUseLru(Lru):
    """LRU that stores at the second use within memory of ids: one-time inputs write nothing."""

    def __init__(self, capacity_nbytes: int) -> None:
        super().__init__(capacity_nbytes)
        self._seen: OrderedDict[int, None] = OrderedDict()

    def use(self, used: Input, seconds: float) -> bool:
        """Use *used*."""
        if used not in self._kept:
            known = used.number in self._seen
            self._seen[used.number] = None
            self._seen.move_to_end(used.number)
            if len(self._seen) > 100_000:
                self._seen.popitem(last=False)
            if not known:
                return False
        return super().use(used, seconds)


@attrs.define
class _Held:
    """What is remembered of a kept input."""

    priority: float
    uses: int


class GreedyDual:
    """What is worth least goes: worth is age plus value per byte, as GreedyDual-Size(-Frequency) has it.

    Args:
        capacity_nbytes: How much is kept.
        value: Of an input that was used so often, e.g. the encoder's seconds times the uses.
    """

    def __init__(self, capacity_nbytes: int, value: Callable[[Input, int], float]) -> None:
        self._capacity_nbytes = capacity_nbytes
        self._value = value
        self._inflation = 0.0
        self._kept: dict[Input, _Held] = {}
        self._heap: list[tuple[float, int, Input]] = []
        self._nbytes = 0

    def use(self, used: Input, seconds: float) -> bool:  # noqa: ARG002 - it has a clock of its own
        """Use *used*."""
        held = self._kept.get(used)
        if held is None:
            if used.nbytes > self._capacity_nbytes:
                return False
            self._kept[used] = _Held(self._push(used, 1), 1)
            self._nbytes += used.nbytes
            while self._nbytes > self._capacity_nbytes:
                self._evict()
            return False
        held.uses += 1
        held.priority = self._push(used, held.uses)
        return True

    def _push(self, used: Input, uses: int) -> float:
        priority = self._inflation + self._value(used, uses) / used.nbytes
        heapq.heappush(self._heap, (priority, used.number, used))
        return priority

    def _evict(self) -> None:
        while True:
            priority, _, candidate = heapq.heappop(self._heap)
            held = self._kept.get(candidate)
            if held is not None and held.priority == priority:
                break
        self._inflation = priority
        del self._kept[candidate]
        self._nbytes -= candidate.nbytes


class Sampled:
    """The store's way: of a sample of 64 the one that ranks lowest goes.

    Args:
        capacity_nbytes: How much is kept.
        rank: Of an input, from its last use in seconds, its uses, and the time now.
    """

    SAMPLE: Final = 64

    def __init__(
        self, capacity_nbytes: int, rank: Callable[[Input, float, int, float], float]
    ) -> None:
        self._capacity_nbytes = capacity_nbytes
        self._rank = rank
        self._rng = random.Random(0)
        self._last: dict[Input, tuple[float, int]] = {}
        self._order: list[Input] = []
        self._place: dict[Input, int] = {}
        self._nbytes = 0

    def use(self, used: Input, seconds: float) -> bool:
        """Use *used*."""
        if used in self._last:
            self._last[used] = (seconds, self._last[used][1] + 1)
            return True
        if used.nbytes > self._capacity_nbytes:
            return False
        self._last[used] = (seconds, 1)
        self._place[used] = len(self._order)
        self._order.append(used)
        self._nbytes += used.nbytes
        while self._nbytes > self._capacity_nbytes:
            self._evict(seconds)
        return False

    def _evict(self, now: float) -> None:
        sample = self._rng.sample(self._order, min(self.SAMPLE, len(self._order)))
        gone = min(sample, key=lambda one: self._rank(one, *self._last[one], now))
        last = self._order.pop()
        if last is not gone:
            self._order[self._place[gone]] = last
            self._place[last] = self._place[gone]
        del self._place[gone], self._last[gone]
        self._nbytes -= gone.nbytes


def _per_byte(used: Input) -> float:
    return used.encoder_seconds / used.nbytes


MakePolicy = Callable[[int], Policy]
POLICIES: Final[dict[str, MakePolicy]] = {
    "LRU": Lru,
    "LRU, from the second use": SecondUseLru,
    "GreedyDual, size": lambda capacity: GreedyDual(capacity, lambda _used, _uses: 1.0),
    "GreedyDual, size and uses": lambda capacity: GreedyDual(
        capacity, lambda _used, uses: float(uses)
    ),
    "GreedyDual, encoder seconds": lambda capacity: GreedyDual(
        capacity, lambda used, _uses: used.encoder_seconds
    ),
    "GreedyDual, encoder seconds and uses": lambda capacity: GreedyDual(
        capacity, lambda used, uses: used.encoder_seconds * uses
    ),
    "sampled, last use": lambda capacity: Sampled(capacity, lambda _used, last, _uses, _now: last),
    "sampled, uses and encoder seconds per byte over age": lambda capacity: Sampled(
        capacity, lambda used, last, uses, now: uses * _per_byte(used) / (now - last + 1)
    ),
}


@attrs.frozen
class Outcome:
    """What a policy came to on a trace.

    Attributes:
        hit_ratio: Share of the uses.
        byte_hit_ratio: Share of the bytes.
        seconds_saved: Of the encoder.
        share_saved: Of the encoder's time without a cache.
    """

    hit_ratio: float
    byte_hit_ratio: float
    seconds_saved: float
    share_saved: float


def replay(trace: Trace, policy: Policy) -> Outcome:
    """Use everything of *trace* in order."""
    hits: Counter[str] = Counter()
    saved = 0.0
    for seconds, used in trace.uses:
        hits["all"] += 1
        hits["all bytes"] += used.nbytes
        if policy.use(used, seconds):
            hits["hits"] += 1
            hits["hit bytes"] += used.nbytes
            saved += used.encoder_seconds
    return Outcome(
        hits["hits"] / hits["all"],
        hits["hit bytes"] / hits["all bytes"],
        saved,
        saved / trace.encoder_seconds,
    )
