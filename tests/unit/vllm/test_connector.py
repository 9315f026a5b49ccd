"""The connector as vLLM makes it: real engine, real store, real ledger, in one process."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

from eccache.adapters.vllm.content import Contents
from eccache.app.telemetry import LocalTelemetry
from eccache.app.vllm import ECCacheConnector
from eccache.domain.errors import ConfigError
from eccache.ports.telemetry import Level
from tests.e2e.entry_files import DAMAGES, entry_file_of, entry_files
from tests.e2e.waiting import eventually
from tests.unit.vllm.conftest import MakeConfig
from tests.unit.vllm.engine import Engine
from tests.unit.vllm.requests import Input, digest, make_request
from tests.unit.vllm.runners import FirstRunner, SecondRunner

A, B = digest(1), digest(2)
RUNNERS = {"first runner": FirstRunner, "second runner": SecondRunner}


@pytest.fixture(params=list(RUNNERS.values()), ids=list(RUNNERS))
def runner(request: pytest.FixtureRequest) -> type[FirstRunner]:
    """Each of vLLM's two runners."""
    kind: type[FirstRunner] = request.param
    return kind


Start = Callable[..., Engine]


@pytest.fixture
def start(make_config: MakeConfig, tmp_path: Path, runner: type[FirstRunner]) -> Iterator[Start]:
    """Starts an engine on one root as vLLM does: worker first, then scheduler, both in this process."""
    with ExitStack() as stack:

        def start(role: str = "ec_both", **extra: Any) -> Engine:
            config = make_config(role)
            config.ec_transfer_config.ec_connector_extra_config = {
                "local_disk": str(tmp_path),
                **extra,
            }
            made = [
                ECConnectorFactory.create_connector(config, kind)
                for kind in (ECConnectorRole.WORKER, ECConnectorRole.SCHEDULER)
            ]
            engine = Engine(config, made[1], [runner(made[0])])
            stack.callback(stop, engine)
            return engine

        yield start


def stop(engine: Engine) -> None:
    """End an engine as vLLM does. Idempotent."""
    engine.scheduler.ec_connector.shutdown()
    engine.runners[0].connector.shutdown()


def ask(engine: Engine, name: str, *inputs: Input, **more: Any) -> Any:
    """Serve one request to its end."""
    request = make_request(name, *inputs, block_hasher=engine.block_hasher, **more)
    engine.serve(request)
    return request


def test_a_start_says_once_where_entries_are(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directory, cap and namespace; nothing of a cache that is switched off, which is a line of its own."""
    said: list[tuple[Level, dict[str, object]]] = []

    def event(_: LocalTelemetry, level: Level, event: str, **fields: object) -> None:
        if event == "vllm.cache.opened":
            said.append((level, fields))

    monkeypatch.setattr(LocalTelemetry, "event", event)
    start()
    start(enabled=False)
    ((level, fields),) = said
    assert Level.INFO is level
    assert re.fullmatch(r"[0-9a-f]{16}", str(fields.pop("namespace")))
    assert {"store": str(tmp_path), "cap": "64.0 GiB"} == fields


def test_a_restarted_engine_loads_what_was_stored(start: Start, tmp_path: Path) -> None:
    """Stored by one engine, verified, promised and loaded by the next, bit for bit."""
    cold = start()
    ask(cold, "r", Input(id=A, offset=0), Input(id=B, offset=10))
    stop(cold)
    assert 2 == len(entry_files(tmp_path))
    warm = start()
    ask(warm, "r", Input(id=A, offset=0), Input(id=B, offset=10))
    assert ([], [A, B]) == (warm.runners[0].encoded, sorted(warm.runners[0].loaded))


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_after_the_promise_changes_nothing(start: Start, tmp_path: Path, kind: str) -> None:
    """The copy that was promised is loaded, whatever happens to the file before its load."""
    cold = start()
    ask(cold, "r", Input(id=A, offset=0))
    stop(cold)
    file = entry_file_of(tmp_path, A)
    assert file is not None
    warm = start()
    plan = warm.scheduler.ec_connector.build_connector_meta

    def damaging(step: Any) -> Any:
        metadata = plan(step)
        if metadata.plan.loads:
            DAMAGES[kind](file)
        return metadata

    warm.scheduler.ec_connector.build_connector_meta = damaging
    ask(warm, "r", Input(id=A, offset=0))
    assert ([], [A]) == (warm.runners[0].encoded, warm.runners[0].loaded)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_before_the_promise_costs_an_encoder_run(
    start: Start, tmp_path: Path, kind: str
) -> None:
    """A damaged entry is a miss, is stored anew, and serves the next engine."""
    for encoded in ([A], [A], []):
        engine = start()
        ask(engine, "r", Input(id=A, offset=0))
        stop(engine)
        assert encoded == engine.runners[0].encoded
        if encoded:
            file = entry_file_of(tmp_path, A)
            assert file is not None
            if len(list(tmp_path.glob("damaged"))) == 0:
                (tmp_path / "damaged").touch()
                DAMAGES[kind](file)


def test_another_size_under_a_stored_id_runs_the_encoder_and_replaces(start: Start) -> None:
    """4 rows stored, 9 needed: a miss; and from then on 9 rows are stored."""
    for rows, encoded in ((4, [A]), (9, [A]), (9, [])):
        engine = start()
        ask(engine, "r", Input(id=A, offset=0, rows=rows))
        stop(engine)
        assert encoded == engine.runners[0].encoded


def test_roles(start: Start, tmp_path: Path) -> None:
    """A consumer stores nothing, a producer loads nothing, a consumer loads what a producer stored."""
    consumer = start("ec_consumer")
    ask(consumer, "c", Input(id=A, offset=0))
    stop(consumer)
    assert [] == entry_files(tmp_path)
    for _ in range(2):
        producer = start("ec_producer")
        ask(producer, "p", Input(id=A, offset=0))
        stop(producer)
        assert ([A], []) == (producer.runners[0].encoded, producer.runners[0].loaded)
    second = start("ec_consumer")
    ask(second, "c", Input(id=A, offset=0))
    assert ([], [A]) == (second.runners[0].encoded, second.runners[0].loaded)


def test_a_producer_describes_what_it_stores(start: Start) -> None:
    """Each input with places, grid and content; one that is not stored without, so its media stay."""
    producer = start("ec_producer")
    connector = producer.scheduler.ec_connector
    request = make_request(
        "r", Input(id=A, offset=0), Input(id=A, offset=9), Input(id="own", offset=20)
    )
    connector.ensure_cache_available(request, 0)
    connector.update_state_after_alloc(request, 0)
    contents = Contents("blake3")
    content = contents.of(request.mm_features[0])
    assert content is not None
    kept, described = connector.request_finished(request)
    assert kept is False
    assert {
        A: {
            "item_indices": [0, 1],
            "metadata": {"image_grid_thw": [1, 8, 8]},
            "content": content.digest(),
        },
        "own": {"item_indices": [2], "metadata": {}},
    } == described
    assert (False, None) == connector.request_finished(make_request("text", prompt_tokens=3))


def test_a_producer_counts_on_no_entry_that_is_gone(start: Start, tmp_path: Path) -> None:
    """What lies on the accelerator is not stored again; with its entry gone, the media are needed."""
    producer = start("ec_producer")
    connector = producer.scheduler.ec_connector
    ask(producer, "first", Input(id=A, offset=0))
    file = eventually(lambda: entry_file_of(tmp_path, A), "the entry")
    assert file is not None
    sizes = []
    for name in ("there", "gone"):
        request = make_request(name, Input(id=A, offset=0))
        connector.ensure_cache_available(request, 0)
        sizes.append(connector.request_finished(request)[1][A]["metadata"])
        file.unlink(missing_ok=True)
    assert [{"image_grid_thw": [1, 8, 8]}, {}] == sizes


def test_a_consumer_describes_nothing(start: Start) -> None:
    """What it could say, the producer has said."""
    connector = start("ec_consumer").scheduler.ec_connector
    assert (False, None) == connector.request_finished(make_request("r", Input(id=A, offset=0)))


def test_both_kinds_of_counts_reach_the_statistics(start: Start) -> None:
    """What a worker stored and what the scheduler looked up come out of the scheduler's connector."""
    engine = start()
    worker, scheduler = engine.runners[0].connector, engine.scheduler.ec_connector
    take, stored = scheduler.get_ec_connector_stats, []

    def seen() -> Any:
        stats = take()
        stored.append(stats.data.get("stored", 0) if stats else 0)
        return stats

    scheduler.get_ec_connector_stats = seen  # the engine takes them too, in every step
    ask(engine, "r", Input(id=A, offset=0))
    while not sum(stored):
        scheduler.update_connector_output(_Output(worker.build_connector_worker_meta()))
        scheduler.get_ec_connector_stats()
    assert 1 == sum(stored)
    assert worker.get_ec_connector_stats() is None


class _Output:
    """What vLLM wraps around a worker's report."""

    def __init__(self, metadata: Any) -> None:
        self.ec_connector_worker_meta = metadata


def test_after_shutdown_nothing_is_left(start: Start) -> None:
    """Every thread of both connectors ends."""
    before = set(threading.enumerate())
    for _ in range(2):
        engine = start()
        ask(engine, "r", Input(id=A, offset=0))
        stop(engine)
        stop(engine)
    left = [one for one in threading.enumerate() if one not in before and "eccache" in one.name]
    for thread in left:
        thread.join(10)
    assert [] == [thread.name for thread in left if thread.is_alive()]


HOOKS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "ensure_cache_available": ((None, 0), True),
    "has_cache_item": (("x",), False),
    "update_state_after_alloc": ((None, 0), None),
    "update_connector_output": ((None,), None),
    "take_unavailable_requests": ((), set()),
    "request_finished": ((None,), (False, None)),
    "get_ec_connector_stats": ((), None),
    "start_load_caches": (({},), None),
    "save_caches": (({}, "x"), None),
    "build_connector_worker_meta": ((), None),
    "shutdown": ((), None),
}


class _Broken:
    """Fails at everything."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"no {name}")

        return fail


@pytest.mark.parametrize("hook", HOOKS)
def test_no_exception_leaves_a_hook(start: Start, hook: str) -> None:
    """A fault anywhere below becomes what costs an encoder run at the most, and is counted."""
    engine = start()
    arguments, otherwise = HOOKS[hook]
    for connector in (engine.scheduler.ec_connector, engine.runners[0].connector):
        whole = (connector._scheduler, connector._worker, connector._close)  # noqa: SLF001
        if connector._scheduler is not None:  # noqa: SLF001
            connector._scheduler = _Broken()  # noqa: SLF001
        else:
            connector._worker = _Broken()  # noqa: SLF001
        connector._close = lambda: 1 / 0  # noqa: SLF001
        assert otherwise == getattr(connector, hook)(*arguments)
        connector._scheduler, connector._worker, connector._close = whole  # noqa: SLF001
    counted = [
        sum(amount for name, amount in connector._telemetry.totals().items() if "faults" in name)  # noqa: SLF001
        for connector in (engine.scheduler.ec_connector, engine.runners[0].connector)
    ]
    assert any(counted)


def test_a_step_that_can_not_be_planned_is_a_step_without_work(start: Start) -> None:
    """The plan's hook has to return metadata, whatever happens."""
    connector = start().scheduler.ec_connector
    whole, connector._scheduler = connector._scheduler, _Broken()  # noqa: SLF001
    assert () == connector.build_connector_meta(None).plan.loads
    connector._scheduler = whole  # noqa: SLF001


@pytest.mark.parametrize(
    ("extra", "words"),
    [({"local_dsk": "/x"}, "local_disk"), ({"max_local_disk_size": -1}, "max_local_disk_size")],
    ids=["unknown key", "bad value"],
)
def test_wrong_configuration_stops_the_start(
    make_config: MakeConfig, extra: dict[str, Any], words: str
) -> None:
    """The one exception that leaves the connector says what to write instead."""
    config = make_config()
    config.ec_transfer_config.ec_connector_extra_config = extra
    with pytest.raises(ConfigError, match=words):
        ECCacheConnector(config, ECConnectorRole.WORKER)


def test_a_scheduler_without_its_workers_is_refused(make_config: MakeConfig) -> None:
    """Promised copies must be reachable, or there must be no server."""
    with pytest.raises(ConfigError, match="found no worker"):
        ECCacheConnector(make_config(), ECConnectorRole.SCHEDULER)


def test_each_side_leaves_the_others_hooks_alone(start: Start) -> None:
    """A worker is asked nothing of the scheduler's; should it be, the answer is harmless."""
    engine = start()
    worker, scheduler = engine.runners[0].connector, engine.scheduler.ec_connector
    for hook, (arguments, otherwise) in HOOKS.items():
        if hook != "shutdown":
            one = worker if hook in SCHEDULER_HOOKS else scheduler
            assert otherwise == getattr(one, hook)(*arguments)
    assert () == worker.build_connector_meta(None).plan.loads


SCHEDULER_HOOKS = set(HOOKS) - {"start_load_caches", "save_caches", "build_connector_worker_meta"}


def test_front_end_hooks_make_the_right_kinds() -> None:
    """The API process calls these two, on the class."""
    from vllm.v1.metrics.prometheus import unregister_vllm_metrics

    stats = ECCacheConnector.build_ec_connector_stats({"hits": 1})
    assert stats is not None
    assert {"hits": 1} == stats.reduce()
    empty = ECCacheConnector.build_ec_connector_stats()
    assert empty is not None
    assert empty.is_empty()
    from prometheus_client import Counter, Gauge, Histogram

    config: Any = type("Config", (), {"ec_transfer_config": None})
    types: Any = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}
    made = ECCacheConnector.build_prom_metrics(config, types, ["engine"], {0: ["0"]})
    assert made is not None
    unregister_vllm_metrics()


IMPORT = """
import json, sys, threading, types
names = ["vllm", "vllm.distributed", "vllm.distributed.ec_transfer"]
names += [names[-1] + ".ec_connector", names[-1] + ".ec_connector.base"]
for name in names:  # what vLLM has imported long before
    sys.modules[name] = types.ModuleType(name)
for name in ("Base", "Metadata", "Role", "WorkerMetadata"):
    setattr(sys.modules[names[-1]], "ECConnector" + name, type(name, (), {}))
import eccache.app.vllm
print(json.dumps([sorted(sys.modules), threading.active_count()]))
"""


def test_importing_the_connector_does_no_work() -> None:
    """It happens in vLLM's API process too: no store, configuration, torch or logging; no thread."""
    run = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    modules, threads = json.loads(run.stdout)
    heavy = (
        "torch",
        "structlog",
        "cattrs",
        "yaml",
        "xxhash",
        "eccache.app.engine",
        "eccache.adapters.disk",
    )
    assert ([], 1) == ([name for name in modules if name.startswith(heavy)], threads)


def test_the_base_has_no_hook_that_was_overlooked() -> None:
    """Every hook of vLLM's base is either ours or known to need nothing."""
    needs_nothing = {
        "bind_connector_metadata",
        "clear_connector_metadata",
        "get_finished",
        "has_pending_push_work",
        "is_consumer",
        "is_producer",
        "register_caches",
        "role",
        "start_save_caches",
        "start_worker_services",
        "update_state_after_free",
    }
    public = {name for name in vars(ECConnectorBase) if not name.startswith("_")}
    ours = {name for name in vars(ECCacheConnector) if not name.startswith("_")}
    assert public == ours | needs_nothing


def test_encoder_outputs_are_loaded_where_the_rank_is(start: Start) -> None:
    """On the CPU a load is on the CPU, of the encoder's own dtype."""
    cold = start()
    ask(cold, "r", Input(id=A, offset=0))
    stop(cold)
    warm = start()
    ask(warm, "r", Input(id=A, offset=0))
    loaded = warm.runners[0].encoder_cache[A]
    assert ("cpu", torch.bfloat16) == (loaded.device.type, loaded.dtype)
