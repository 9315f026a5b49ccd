"""The worker's side: vLLM's calls around a forward pass, translated into the driving port `WorkerCache`.

Both of vLLM's model runners bind a step's metadata, call `start_load_caches`, run the encoder for what
is missing, call `save_caches` for what was encoded, and collect the report. They differ in when: the
first one only in steps that have tokens, the second in every step, and there never for an output that
was on the accelerator already. So nothing here waits for a call that may not come.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Generic, TypeVar

import attrs

from eccache.adapters.vllm.metadata import ReportMetadata, StepMetadata, merged
from eccache.adapters.vllm.weights_watch import ResetWatch
from eccache.ports.lookup import WorkerCache, WorkerReport

T = TypeVar("T")

PER_RANK_COUNTERS: Final = frozenset({"errors", "faults", "broken_promises"})
"""Counters of which each rank has its own; all others count what every rank does alike."""


@attrs.frozen(kw_only=True)
class WorkerRole:
    """What this rank does.

    Attributes:
        saves: encoder outputs are stored (producer).
        loads: encoder outputs are served (consumer).
        primary: the one rank that stores, and whose counters are reported.
    """

    saves: bool
    loads: bool
    primary: bool


class WorkerSide(Generic[T]):
    """Called by vLLM's model runner, from its one thread.

    Args:
        cache: the cache.
        role: what this rank does.
        device: names the device of this rank when asked, e.g. `"cuda:1"`.
        may_synchronize: wraps what may wait for the device, for hosts that watch over that.
        resets: sees that vLLM emptied the encoder cache; from then on nothing is stored.
        send_aside: takes reports where vLLM drops them; False if it can not now, and they are kept.
    """

    def __init__(
        self,
        cache: WorkerCache[T],
        role: WorkerRole,
        device: Callable[[], str],
        may_synchronize: Callable[[], AbstractContextManager[object]] = nullcontext,
        resets: ResetWatch[T] | None = None,
        send_aside: Callable[[WorkerReport], bool] | None = None,
    ) -> None:
        self._cache = cache
        self._role = role
        self._device = device
        self._may_synchronize = may_synchronize
        self._resets = resets
        self._send_aside = send_aside
        self._unsent = WorkerReport()

    def start_step(self, encoder_cache: MutableMapping[str, T]) -> None:
        """Watch over *encoder_cache*: vLLM empties it when it gets other weights."""
        if self._resets is not None:
            self._resets.watch(encoder_cache)

    def start_load_caches(
        self, metadata: StepMetadata | None, encoder_cache: MutableMapping[str, T]
    ) -> None:
        """Put every promised copy of this step into *encoder_cache*.

        What is there already under the same id is replaced: the copy was verified for the rows that the
        scheduler needs, what is there was not.
        """
        if metadata is None or not metadata.plan.loads or not self._role.loads:
            return
        with self._may_synchronize():
            encoder_cache.update(self._cache.load(metadata.plan.loads, self._device()))

    def save_caches(
        self, metadata: StepMetadata | None, encoder_cache: MutableMapping[str, T], mm_hash: str
    ) -> None:
        """Store what the encoder just made, if the scheduler allowed it and this rank is to.

        Encoder-decoder models reach this without a step's metadata; then nothing was allowed.
        """
        if metadata is None or not (self._role.saves and self._role.primary):
            return
        if self._resets is not None and self._resets.happened:
            return
        for permitted in metadata.plan.saves:
            if permitted.mm_hash == mm_hash:
                self._cache.save(permitted, encoder_cache[mm_hash])

    def build_connector_worker_meta(self) -> ReportMetadata | None:
        """Return what this rank did since the last call; None if that is nothing."""
        report = self._cache.take_report()
        if report is None:
            return None
        if not self._role.primary:
            report = _own(report)
        if not (report.acks or report.counters or report.observations or report.made):
            return None
        if self._send_aside is None:
            return ReportMetadata(report)
        self._unsent = merged(self._unsent, attrs.evolve(report, observations={}))
        if self._send_aside(self._unsent):
            self._unsent = WorkerReport()
        return None

    def close(self) -> None:
        """Wait for accepted saves, then give everything back. Idempotent."""
        if self._resets is not None:
            self._resets.close()
        self._cache.close()


def _own(report: WorkerReport) -> WorkerReport:
    """Return what of a report holds for one rank alone."""
    counters = {
        name: amount
        for name, amount in report.counters.items()
        if name.partition(":")[0] in PER_RANK_COUNTERS
    }
    return WorkerReport(acks=report.acks, counters=counters)
