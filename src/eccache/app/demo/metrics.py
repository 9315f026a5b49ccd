"""Reads what a server shows on `/metrics`."""

from __future__ import annotations

from typing import Self

import attrs


@attrs.frozen
class Sample:
    """One line of the Prometheus text format: `name{labels} value`."""

    name: str
    labels: str
    value: float


@attrs.frozen
class Metrics:
    """All samples of one scrape."""

    samples: tuple[Sample, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the Prometheus text format, as vLLM writes it (without time stamps)."""
        samples = []
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            samples.append(Sample(name=name, labels=labels.removesuffix("}"), value=float(value)))
        return cls(tuple(samples))

    def total(self, name: str, **labels: str) -> float:
        """Sum of a series over all its label values, or over those that carry *labels*.

        Zero when there is none.
        """
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and all(label in sample.labels for label in wanted)
        )
