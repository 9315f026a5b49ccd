"""Which input is used when, by two models of users."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

import attrs

from bench.replay.media import KINDS

HIDDEN: Final = 3584
ZIPF: Final = 0.9
SECONDS_BETWEEN: Final = 0.5


@attrs.frozen
class Input:
    """A distinct input.

    Attributes:
        number: Its id.
        kind: Name of what it is.
        rows: Of its encoder output.
        encoder_seconds: What a miss costs.
    """

    number: int
    kind: str
    rows: int
    encoder_seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of its encoder output, bfloat16."""
        return self.rows * HIDDEN * 2


@attrs.frozen
class Trace:
    """A sequence of uses.

    Attributes:
        name: Of the model of users.
        uses: Seconds since the start, and what is used.
    """

    name: str
    uses: tuple[tuple[float, Input], ...]

    @property
    def distinct_nbytes(self) -> int:
        """Bytes of every input that occurs."""
        return sum(used.nbytes for used in {used for _, used in self.uses})

    @property
    def encoder_seconds(self) -> float:
        """What the encoder would take without a cache."""
        return sum(used.encoder_seconds for _, used in self.uses)


class _Inputs:
    """Draws new inputs."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0

    def draw(self) -> Input:
        (kind,) = self._rng.choices(KINDS, [kind.share for kind in KINDS])
        low, high = map(math.log, kind.rows)
        rows = round(math.exp(self._rng.uniform(low, high)))
        self._number += 1
        return Input(self._number, kind.name, rows, kind.encoder_seconds(rows))


def zipf(uses: int, inputs: int, seed: int) -> Trace:
    """Return independent uses: the n-th most popular input with a chance in proportion to n ** -0.9."""
    rng = random.Random(seed)
    new = _Inputs(rng)
    all_inputs = [new.draw() for _ in range(inputs)]
    chances = list(accumulate((n + 1) ** -ZIPF for n in range(inputs)))
    drawn = rng.choices(all_inputs, cum_weights=chances, k=uses)
    return Trace("zipf", tuple((n * SECONDS_BETWEEN, used) for n, used in enumerate(drawn)))


def chat(uses: int, seed: int) -> Trace:
    """Return conversations: each turn sends again all that was sent before in its conversation.

    Conversations begin at random and have a geometric number of turns, a mean of four; a turn comes a minute
    or two after the last one, and every third brings a further input. One input in eight is not the user's
    own but popular (a form, a picture that goes round), drawn from two hundred with Zipf's law; nine in ten
    inputs are seen in one conversation alone.
    """
    rng = random.Random(seed)
    new = _Inputs(rng)
    popular = [new.draw() for _ in range(200)]
    chances = list(accumulate((n + 1) ** -ZIPF for n in range(len(popular))))

    def draw() -> Input:
        if rng.random() < 1 / 8:
            return rng.choices(popular, cum_weights=chances)[0]
        return new.draw()

    return Trace("chat", tuple(_turns(rng, uses, draw)))


def _turns(
    rng: random.Random, uses: int, draw: Callable[[], Input]
) -> Iterator[tuple[float, Input]]:
    waiting: list[tuple[float, int, list[Input]]] = []
    starts = 0.0
    conversations = 0
    made = 0
    while made < uses:
        while not waiting or starts <= waiting[0][0]:
            heapq.heappush(waiting, (starts, conversations, [draw()]))
            conversations += 1
            starts += rng.expovariate(1 / (6 * SECONDS_BETWEEN))
        seconds, number, sent = heapq.heappop(waiting)
        for used in sent:
            yield seconds, used
            made += 1
        if rng.random() < 3 / 4:
            if rng.random() < 1 / 3:
                sent = [*sent, draw()]
            heapq.heappush(waiting, (seconds + rng.expovariate(1 / 90), number, sent))
