"""What vLLM carries between its scheduler and its workers: the ports' values in vLLM's envelopes.

Both envelopes are pickled by vLLM. They hold plain values only.
"""

from __future__ import annotations

from collections import Counter

from vllm.distributed.ec_transfer.ec_connector.base import (
    ECConnectorMetadata,
    ECConnectorWorkerMetadata,
)

from eccache.ports.lookup import StepPlan, WorkerReport


class StepMetadata(ECConnectorMetadata):
    """A step's plan on its way to the workers."""

    def __init__(self, plan: StepPlan) -> None:
        self.plan = plan


NO_WORK = StepMetadata(StepPlan())
"""The envelope of a step without loads and saves: one object, since nearly every step is one."""


class ReportMetadata(ECConnectorWorkerMetadata):
    """One rank's report, or that of several, on its way to the scheduler."""

    def __init__(self, report: WorkerReport) -> None:
        self.report = report

    def aggregate(self, other: ECConnectorWorkerMetadata) -> ECConnectorWorkerMetadata:
        """Return the sum of both reports: acks and counters added up, observations joined."""
        if not isinstance(other, ReportMetadata):
            return self
        return ReportMetadata(merged(self.report, other.report))


def merged(first: WorkerReport, second: WorkerReport) -> WorkerReport:
    """Return what both reports say together."""
    observations = {name: list(values) for name, values in first.observations.items()}
    for name, values in second.observations.items():
        observations.setdefault(name, []).extend(values)
    return WorkerReport(
        acks=dict(Counter(first.acks) + Counter(second.acks)),
        counters=dict(Counter(first.counters) + Counter(second.counters)),
        observations=observations,
        made=first.made | second.made,
    )
