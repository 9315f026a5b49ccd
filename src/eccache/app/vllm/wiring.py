"""What each of vLLM's connectors is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase

from eccache.adapters.memfd import MemfdCopies
from eccache.adapters.system import SystemClock
from eccache.adapters.system.mapping import map_private
from eccache.adapters.torch import TorchFramework, host_memory
from eccache.adapters.vllm import device, fingerprint, ranks
from eccache.adapters.vllm.admission import Admission
from eccache.adapters.vllm.content import Contents, promise_content
from eccache.adapters.vllm.item_metadata import ItemDescriber
from eccache.adapters.vllm.reachability import (
    Beacon,
    BeaconWatch,
    engine_token,
    prove_reachable,
)
from eccache.adapters.vllm.refusals import refuse_unusable
from eccache.adapters.vllm.scheduler_side import SchedulerRole, SchedulerSide
from eccache.adapters.vllm.side_channel import ReportReceiver, ReportSender, output_is_dropped
from eccache.adapters.vllm.weights_identity import weights_identity
from eccache.adapters.vllm.weights_watch import ResetWatch
from eccache.adapters.vllm.worker_side import WorkerRole, WorkerSide
from eccache.app.bootstrap import namespace_of, open_engine
from eccache.app.bootstrap.stores import described_place, open_store, waits_for_nobody
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.config import CacheConfig, load_config
from eccache.app.promises.assembly import PromiseParts, open_promises
from eccache.app.promises.ledger import PromiseLedger
from eccache.app.promises.limits import LedgerLimits
from eccache.app.promises.probe import BoundedProbe
from eccache.app.store_levels import StoreLevels
from eccache.app.telemetry import LocalTelemetry
from eccache.app.vllm import sharing
from eccache.app.worker import CacheWorker
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import Namespace
from eccache.ports.lookup import Item
from eccache.ports.storage import EntryStore
from eccache.ports.telemetry import Level

LOGGER = "vllm.eccache"
"""Below vLLM's own logger, whose handler and level it gets; eccache configures no logging."""


@attrs.frozen(kw_only=True)
class SchedulerParts:
    """The scheduler's connector: the side, and what its hooks need beside it."""

    side: SchedulerSide
    telemetry: LocalTelemetry
    describe: Callable[[Any], dict[str, Any] | None]
    close: Callable[[], None]


@attrs.frozen(kw_only=True)
class WorkerParts:
    """A worker's connector: the side, and what its hooks need beside it."""

    side: WorkerSide[torch.Tensor]
    telemetry: LocalTelemetry
    confirm: Callable[[], None]
    close: Callable[[], None]


@attrs.frozen(kw_only=True)
class _Common:
    """What both connectors of an engine derive alike from vLLM's configuration."""

    config: CacheConfig
    identity: fingerprint.ModelIdentity
    namespace: Namespace
    clock: SystemClock
    telemetry: LocalTelemetry

    def ref(self, mm_hash: str, variant: str) -> EntryRef:
        """Return name and identity of an input's entry."""
        identity = self.identity
        return EntryRef.for_mm_hash(
            self.namespace, identity.model, mm_hash, identity.encoder_dtype, variant=variant
        )


def scheduler(vllm_config: Any) -> SchedulerParts:
    """Return the scheduler's connector; the workers' connectors of the engine exist already.

    Raises:
        ConfigError: wrong configuration, or workers that can't reach promised copies.
    """
    common = _common(vllm_config)
    transfer = vllm_config.ec_transfer_config
    token = engine_token(vllm_config)
    prove_reachable(token, ranks.all_ranks(vllm_config.parallel_config))
    beacon = BeaconWatch(token, ranks.Rank())
    reports = ReportReceiver(token) if output_is_dropped(vllm_config) else None
    contents = Contents(sharing.hasher_of(vllm_config.model_config))
    store = open_store(common.config, common.namespace, common.clock, common.telemetry)
    if place := described_place(store):
        common.telemetry.event(
            Level.INFO, "vllm.cache.opened", **place, namespace=common.namespace.fingerprint
        )
    probes = BoundedCalls("eccache-probe", max_lost=1)
    probe = BoundedProbe(
        store,
        probes,
        common.config.probe_timeout_seconds,
        at_once=waits_for_nobody(store),
    )
    lookup = _promises(common, vllm_config, store, probe)
    levels = StoreLevels(store.stats, common.telemetry)
    describer = ItemDescriber(vllm_config.model_config)
    side = SchedulerSide(
        lookup,
        Admission(
            sharing.policy_of(common.config, vllm_config, common.identity, common.telemetry),
            sharing.knowledge_of(
                vllm_config, contents, common.clock, common.identity.encoder_dtype
            ),
            describer.metadata_fields,
        ),
        SchedulerRole(saves=transfer.is_ec_producer, loads=transfer.is_ec_consumer),
        common.telemetry,
        (lambda: True) if common.config.fixed_weights else beacon.is_lit,
        tuple if reports is None else reports.receive,
        beacon.blinked if common.config.fixed_weights else (lambda: False),
    )

    def is_there(item: Item) -> bool:
        return probe(common.ref(item.mm_hash, item.variant)) is not False

    def describe(request: Any) -> dict[str, Any] | None:
        if not transfer.is_ec_producer:
            return None
        items = describer.describe(
            request, lambda identifier: side.will_be_found(request, identifier, is_there)
        )
        for identifier, item in (items or {}).items():
            promise_content(item, side.content(request, identifier))
        return items

    def close() -> None:
        levels.close()
        side.close()
        contents.close()
        if reports is not None:
            reports.close()
        beacon.close()
        probes.close()
        store.close()

    return SchedulerParts(side=side, telemetry=common.telemetry, describe=describe, close=close)


def worker(vllm_config: Any) -> WorkerParts:
    """Return a worker's connector.

    Raises:
        ConfigError: wrong configuration.
    """
    common = _common(vllm_config)
    transfer = vllm_config.ec_transfer_config
    rank = ranks.Rank.of_this_process(vllm_config.parallel_config)
    host = TorchFramework()
    engine = open_engine(
        common.config,
        host,
        model=common.identity.model,
        encoder_dtype=common.identity.encoder_dtype,
        namespace=common.namespace,
        make_memory=host_memory,
        telemetry=common.telemetry,
    )
    cache = CacheWorker(
        copies=MemfdCopies(map_private),
        host=host,
        put=lambda permitted, tensor: engine.put_entry(
            attrs.evolve(
                common.ref(permitted.mm_hash, permitted.variant), content=permitted.content
            ),
            tensor,
            borrow=True,
        ),
        close=engine.close,
        clock=common.clock,
        telemetry=common.telemetry,
    )
    token = engine_token(vllm_config)
    beacon = Beacon(token, rank)
    reports = ReportSender(token) if output_is_dropped(vllm_config) else None
    fixed = common.config.fixed_weights
    side = WorkerSide(
        cache,
        WorkerRole(
            saves=transfer.is_ec_producer,
            loads=transfer.is_ec_consumer,
            primary=rank.is_primary,
        ),
        device.current_device,
        device.synchronization_allowed,
        ResetWatch(lambda: torch.empty(0), beacon.blink if fixed else beacon.close, once=not fixed),
        None if reports is None else reports.send,
    )

    def close() -> None:
        side.close()
        beacon.close()
        if reports is not None:
            reports.close()

    return WorkerParts(
        side=side,
        telemetry=common.telemetry,
        confirm=lambda: _confirm_weights(common.identity, vllm_config),
        close=close,
    )


def _confirm_weights(identity: fingerprint.ModelIdentity, vllm_config: Any) -> None:
    """Require that the weights, which are loaded now, are those that were looked at before.

    Raises:
        ConfigError: somebody replaced them meanwhile, so that nobody knows which were loaded.
    """
    now = weights_identity(vllm_config.model_config, vllm_config.load_config)
    if now.text != identity.ingredients["weights"]:
        msg = f"the files of {identity.model} changed while the weights were loaded."
        raise ConfigError(msg, remedy="start again, once nobody writes there.")


def _common(vllm_config: Any) -> _Common:
    config = load_config(vllm_config.ec_transfer_config.ec_connector_extra_config)
    refuse_unusable(vllm_config, ECConnectorBase)
    identity = fingerprint.model_identity(vllm_config, vllm_version=_vllm_version())
    clock = SystemClock()
    return _Common(
        config=config,
        identity=identity,
        namespace=namespace_of(config, identity.ingredients),
        clock=clock,
        telemetry=LocalTelemetry(clock, LOGGER),
    )


def _vllm_version() -> str:
    import vllm

    return str(vllm.__version__)


def _promises(
    common: _Common, vllm_config: Any, store: EntryStore, probe: BoundedProbe
) -> PromiseLedger:
    config = common.config
    at_once = vllm_config.scheduler_config.max_num_seqs
    return open_promises(
        PromiseParts(
            store=store,
            copies=MemfdCopies(map_private),
            ref_of=lambda item: common.ref(item.mm_hash, item.variant),
            probe=probe,
            clock=common.clock,
            telemetry=common.telemetry,
        ),
        limits=LedgerLimits(
            lookup_timeout_seconds=config.lookup_timeout_seconds,
            max_deferred_requests=at_once
            if config.max_deferred_requests is None
            else config.max_deferred_requests,
            max_promised_nbytes=config.max_promised_nbytes,
            promise_ttl_seconds=config.promise_ttl_seconds,
            load_ack_timeout_seconds=config.load_ack_timeout_seconds,
        ),
        ranks=ranks.acknowledging_ranks(vllm_config.parallel_config),
        threads=config.lookup_threads,
    )
