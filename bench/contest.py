"""Measuring several things side by side.

A shared machine is fast in one minute and slow in the next. So what is compared runs alternately in one
loop, in an order that changes from round to round, and a ratio is the median of the ratios of the rounds,
not the ratio of two medians.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs


def _nothing() -> None:
    return None


@attrs.frozen
class Contender:
    """Something to be timed.

    Attributes:
        name: What it is.
        run: Timed. What it returns is let go after the clock has stopped.
        before: Not timed; runs before each `run`.
        after: Not timed; runs after each `run`.
        calls: How often `run` is called in one sample, for what is too short for one call.
    """

    name: str
    run: Callable[[], object]
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing
    calls: int = attrs.field(default=1, validator=attrs.validators.ge(1))

    def sample(self) -> float:
        """Return the seconds of one call."""
        self.before()
        run = self.run
        if self.calls == 1:
            begin = time.perf_counter()
            kept = run()
            seconds = time.perf_counter() - begin
            del kept
        else:
            again = range(self.calls)
            begin = time.perf_counter()
            for _ in again:
                run()
            seconds = (time.perf_counter() - begin) / self.calls
        self.after()
        return seconds


@attrs.frozen
class Samples:
    """Seconds of one call, by contender; the same index is the same round."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """Return the median of a contender's samples."""
        return statistics.median(self.seconds[name])

    def quartiles(self, name: str) -> tuple[float, float]:
        """Return the first and the third quartile of a contender's samples."""
        values = self.seconds[name]
        if len(values) < 2:
            return values[0], values[0]
        first, _, third = statistics.quantiles(values, n=4, method="inclusive")
        return first, third

    def ratio(self, name: str, other: str) -> float:
        """Return how many times longer than *other* a contender takes, as the median over the rounds."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


def compete(contenders: Sequence[Contender], rounds: int, *, warm_up: int = 2) -> Samples:
    """Time *contenders* alternately.

    Args:
        contenders: What to time. Each round begins with another one.
        rounds: Samples of each.
        warm_up: Rounds before these, which do not count.
    """
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for number in range(-warm_up, rounds):
            first = number % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                seconds = contender.sample()
                if number >= 0:
                    taken[contender.name].append(seconds)
            if number % 16 == 0:
                gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return Samples(taken)
