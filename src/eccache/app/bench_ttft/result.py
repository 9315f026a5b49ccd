"""What was measured, and what it comes to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Sample:
    """One question to one server.

    Attributes:
        ttft_seconds: From sending the request to the first piece of text.
        encoder_seconds: That the encoder took for it, as vLLM counts; None where vLLM does not tell.
        load_seconds: That a worker took to load what was cached; None where the connector does not tell.
        text: The answer.
    """

    ttft_seconds: float
    encoder_seconds: float | None
    load_seconds: float | None
    text: str


@attrs.frozen(kw_only=True)
class Measured:
    """All samples of one case with one connector; the same index is the same repetition.

    Attributes:
        case: Its label.
        connector: Its name.
        cold: By servers with an empty store.
        warm: By restarted servers; empty without a connector.
    """

    case: str
    connector: str
    cold: tuple[Sample, ...]
    warm: tuple[Sample, ...] = ()

    @property
    def cold_seconds(self) -> float:
        """Median time to first token of the cold servers."""
        return statistics.median(sample.ttft_seconds for sample in self.cold)

    @property
    def warm_seconds(self) -> float | None:
        """Median time to first token of the restarted servers."""
        return _median(self.warm, lambda sample: sample.ttft_seconds)

    @property
    def saved_seconds(self) -> float | None:
        """What the restarted server saved."""
        return None if self.warm_seconds is None else self.cold_seconds - self.warm_seconds

    @property
    def speed_up(self) -> float | None:
        """How many times sooner the first token of the restarted server came."""
        return None if self.warm_seconds is None else self.cold_seconds / self.warm_seconds

    @property
    def encoder_seconds(self) -> float | None:
        """Median of what the encoder took in the cold servers."""
        return _median(self.cold, lambda sample: sample.encoder_seconds)

    @property
    def warm_encoder_seconds(self) -> float | None:
        """Median of what the encoder took in the restarted servers: 0 where all was cached."""
        return _median(self.warm, lambda sample: sample.encoder_seconds)

    @property
    def load_seconds(self) -> float | None:
        """Median of what the workers of the restarted servers took to load."""
        return _median(self.warm, lambda sample: sample.load_seconds)

    @property
    def encoder_share_saved(self) -> float | None:
        """What was saved, as a share of the encoder's time; above 1 where noise is larger than the rest."""
        if self.saved_seconds is None or not self.encoder_seconds:
            return None
        return self.saved_seconds / self.encoder_seconds

    @property
    def load_share(self) -> float | None:
        """The workers' time to load, as a share of the encoder's time that it replaces."""
        if self.load_seconds is None or not self.encoder_seconds:
            return None
        return self.load_seconds / self.encoder_seconds

    @property
    def answers_equal(self) -> bool:
        """Whether every server gave the same answer."""
        return len({sample.text for sample in (*self.cold, *self.warm)}) == 1


def _median(samples: Sequence[Sample], figure: Callable[[Sample], float | None]) -> float | None:
    values = [value for sample in samples if (value := figure(sample)) is not None]
    return statistics.median(values) if values else None


FIGURES = (
    *("cold_seconds", "warm_seconds", "saved_seconds", "speed_up", "encoder_seconds"),
    *("warm_encoder_seconds", "load_seconds", "encoder_share_saved", "load_share", "answers_equal"),
)


@attrs.frozen(kw_only=True)
class TtftResult:
    """A whole run.

    Attributes:
        model: Name or folder.
        machine: Where it ran, in words.
        measured: In the order of the plan.
    """

    model: str
    machine: str
    measured: tuple[Measured, ...]

    def document(self) -> dict[str, Any]:
        """Return it as plain values, with all that follows from the samples."""
        return {
            "model": self.model,
            "machine": self.machine,
            "cases": [
                attrs.asdict(one) | {name: getattr(one, name) for name in FIGURES}
                for one in self.measured
            ],
        }

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.document(), indent=2)
