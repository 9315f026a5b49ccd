"""Never another input's output: everything that can differ, one at a time, over the real cache.

Real configurations, connectors, engine, ledger and store; only the model is a stand-in, whose output
follows from the input's id. Each case has an engine that stored a picture, and one that differs in one
thing and asks for the same id: *beside* the first, in the same process and at the same time, or after its
end (*restarted*). Real servers in processes of their own are in `tests/e2e/test_identity.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

from eccache.adapters.disk import DiskStore
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import Frame
from eccache.domain.key import EntryKey
from eccache.domain.outcomes import PutOutcome
from tests.e2e.entry_files import entry_files
from tests.unit.vllm import runners
from tests.unit.vllm.conftest import MakeConfig
from tests.unit.vllm.engine import Engine
from tests.unit.vllm.requests import Input, digest, make_request
from tests.unit.vllm.runners import FirstRunner
from tests.unit.vllm.test_fingerprint import ARGUMENTS, SAME

A = digest(1)
PICTURE = Input(id=A, offset=0)


@attrs.frozen(kw_only=True)
class Server:
    """A server, as a value.

    Attributes:
        arguments: vLLM's arguments, and `role`.
        extra: settings of the cache.
        change: done to vLLM's configuration before the start.
    """

    arguments: dict[str, Any] = attrs.field(factory=dict)
    extra: dict[str, Any] = attrs.field(factory=dict)
    change: Callable[[Any], None] = lambda _: None


@attrs.frozen
class Site:
    """A root, and the engines that were started on it."""

    root: Path
    make_config: MakeConfig
    stack: ExitStack

    def start(self, server: Server) -> Engine:
        """Start *server* as vLLM does: worker first, then scheduler."""
        config = self.make_config(**server.arguments)
        config.ec_transfer_config.ec_connector_extra_config = {
            "local_disk": str(self.root),
            **server.extra,
        }
        config.parallel_config.world_size = 1  # one rank is enough to see what it is called
        config.parallel_config.tensor_parallel_size = 1
        server.change(config)
        made = [
            ECConnectorFactory.create_connector(config, kind)
            for kind in (ECConnectorRole.WORKER, ECConnectorRole.SCHEDULER)
        ]
        made[0].start_worker_services()
        engine = Engine(config, made[1], [FirstRunner(made[0])])
        self.stack.callback(stop, engine)
        return engine


def stop(engine: Engine) -> None:
    """End an engine as vLLM does. Idempotent."""
    engine.scheduler.ec_connector.shutdown()
    engine.runners[0].connector.shutdown()


def encoded(engine: Engine, *inputs: Input, adapter: Any = None, **more: Any) -> list[str]:
    """Serve one request, and return the ids for which the encoder ran."""
    before = len(engine.runners[0].encoded)
    request = make_request(f"r{before}", *(inputs or (PICTURE,)), **more)
    request.lora_request = adapter
    engine.serve(request)
    return engine.runners[0].encoded[before:]


@pytest.fixture
def site(make_config: MakeConfig, tmp_path: Path) -> Iterator[Site]:
    """An empty root."""
    with ExitStack() as stack:
        yield Site(tmp_path / "root", make_config, stack)


@pytest.fixture(params=["beside", "restarted"])
def filled(request: pytest.FixtureRequest, site: Site) -> Site:
    """A root with the picture, whose server still runs, or has ended."""
    first = site.start(Server())
    assert [A] == encoded(first)
    worker = first.runners[0].connector
    worker._worker._cache._close()  # noqa: SLF001 - waits until the entry is there
    if request.param == "restarted":
        stop(first)
    assert 1 == len(entry_files(site.root))
    return site


DIFFERENT: dict[str, Server] = {
    name: Server(arguments=arguments)
    for name, (arguments, _) in ARGUMENTS.items()
    if name != "split over ranks"
} | {
    "epoch": Server(extra={"epoch": "2"}),
    "waived version": Server(extra={"ignore_vllm_version": True}),
    "waived split": Server(extra={"ignore_encoder_split": True}),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_server_that_differs_reuses_nothing_but_its_own(
    filled: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero reuse across the difference; and what it stored itself it finds again."""
    if name == "dtype":
        made = runners.encoder_output
        monkeypatch.setattr(runners, "encoder_output", lambda *which: made(*which).half())
    for expected in ([A], []):
        other = filled.start(DIFFERENT[name])
        assert expected == encoded(other)
        stop(other)
    monkeypatch.undo()
    assert [] == encoded(filled.start(Server())), "what was there before is there still"


ALIKE: dict[str, Server] = {
    name: Server(arguments=arguments)
    for name, arguments in SAME.items()
    if name not in {"no connector", "a producer"}
} | {
    "settings of the cache": Server(extra={"lookup_threads": 1, "writer_threads": 1}),
    "trusted ids": Server(extra={"trust_client_ids": True}),
    "isolated salts": Server(extra={"isolate_salted": True}),
    "unbound": Server(extra={"bind_content": False}),
}


@pytest.mark.parametrize("name", ALIKE)
def test_a_server_that_differs_in_nothing_that_counts_reuses(filled: Site, name: str) -> None:
    """Roles, sizes, limits, and the cache's own bounds keep nobody apart."""
    assert [] == encoded(filled.start(ALIKE[name]))


def test_what_a_producer_stores_its_consumer_finds(site: Site) -> None:
    """Though vLLM sets a dozen fields differently on the two."""
    producer = site.start(Server(arguments={"role": "ec_producer"}))
    encoded(producer)
    stop(producer)
    assert [] == encoded(site.start(Server(arguments={"role": "ec_consumer"})))


def test_other_weights_under_the_same_path_reuse_nothing(
    site: Site, model_folder: Path, tmp_path: Path
) -> None:
    """Behind a link that now points to another folder, and back."""
    model, trained = tmp_path / "current", tmp_path / "trained"
    shutil.copytree(model_folder, trained)
    file = trained / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-200_000:] = bytes(200_000)
    file.write_bytes(content)
    for target, expected in (
        (model_folder, [A]),
        (trained, [A]),
        (model_folder, []),
        (trained, []),
    ):
        model.unlink(missing_ok=True)
        model.symlink_to(target)
        engine = site.start(Server(arguments={"model": str(model)}))
        assert expected == encoded(engine)
        stop(engine)


def test_weights_that_change_while_they_are_loaded_stop_the_start(
    site: Site, model_folder: Path, tmp_path: Path
) -> None:
    """Nobody knows which of them were loaded."""
    from eccache.domain.errors import ConfigError

    model = Path(shutil.copytree(model_folder, tmp_path / "model"))
    config = site.make_config(model=str(model))
    config.ec_transfer_config.ec_connector_extra_config = {"local_disk": str(site.root)}
    worker = ECConnectorFactory.create_connector(config, ECConnectorRole.WORKER)
    try:
        worker.start_worker_services()
        (model / "model.safetensors").write_bytes(b"another")
        with pytest.raises(ConfigError, match="changed while the weights were loaded"):
            worker.start_worker_services()
    finally:
        worker.shutdown()


@pytest.mark.parametrize(
    ("server", "named"),
    [
        (Server(change=lambda c: setattr(c.model_config, "model_weights", "s3://b/m")), "epoch"),
        (Server(arguments={"worker_extension_cls": "trl.Worker"}), "fixed_weights"),
    ],
    ids=["weights that can't be told", "weights that a trainer may replace"],
)
def test_what_is_not_proven_is_not_shared_until_an_operator_says_so(
    site: Site, server: Server, named: str
) -> None:
    """Neither stored nor served; with the operator's word both."""
    for _ in range(2):
        engine = site.start(server)
        assert [A] == encoded(engine)
        stop(engine)
    assert [] == entry_files(site.root)
    word = {"epoch": "spring"} if named == "epoch" else {"fixed_weights": True}
    for expected in ([A], []):
        engine = site.start(attrs.evolve(server, extra=word))
        assert expected == encoded(engine)
        stop(engine)


# --- the input ------------------------------------------------------------------------------------------

DOG: dict[str, Any] = {
    "pixel_values": torch.ones(64, 1176),
    "image_grid_thw": torch.tensor([1, 8, 8]),
}
OTHER_INPUTS: dict[str, Input] = {
    "other pixels under its hash": attrs.evolve(PICTURE, fields=DOG),
    "other rows": attrs.evolve(PICTURE, rows=9),
    "another grid": attrs.evolve(
        PICTURE, fields=DOG | {"image_grid_thw": torch.tensor([1, 4, 16])}
    ),
    "a clip under its hash": attrs.evolve(PICTURE, modality="video"),
    "another hash": attrs.evolve(PICTURE, id=digest(2)),
}


@pytest.mark.parametrize("name", OTHER_INPUTS)
@pytest.mark.parametrize("extra", [{}, {"trust_client_ids": True}], ids=["strict", "trusting"])
def test_another_input_reuses_nothing(filled: Site, name: str, extra: dict[str, Any]) -> None:
    """A forged id, a reused id, an id of another size: the encoder runs."""
    other = OTHER_INPUTS[name]
    assert [other.id] == encoded(filled.start(Server(extra=extra)), other)


def test_pixels_that_replaced_others_under_one_id_are_replaced_again(site: Site) -> None:
    """One entry for an id: the last content wins, and none is ever taken for another."""
    cat, dog = PICTURE, attrs.evolve(PICTURE, fields=DOG)
    for picture, expected in ((cat, [A]), (dog, [A]), (dog, []), (cat, [A]), (cat, []), (dog, [A])):
        engine = site.start(Server())
        assert expected == encoded(engine, picture)
        stop(engine)
    assert 1 == len(entry_files(site.root))


@pytest.mark.parametrize(
    ("extra", "expected"),
    [({}, ["camera", "camera"]), ({"trust_client_ids": True}, ["camera"])],
    ids=["strict", "trusting"],
)
def test_a_clients_id_is_shared_where_it_is_trusted(
    site: Site, extra: dict[str, Any], expected: list[str]
) -> None:
    """And then only with its content."""
    camera = attrs.evolve(PICTURE, id="camera")
    runs: list[str] = []
    for _ in range(2):
        engine = site.start(Server(extra=extra))
        runs += encoded(engine, camera)
        stop(engine)
    assert expected == runs
    other = attrs.evolve(camera, fields=DOG)
    assert ["camera"] == encoded(site.start(Server(extra=extra)), other)


def test_counted_ids_are_refused_in_every_form(make_config: MakeConfig, site: Site) -> None:
    """Also where a request's options would hash the counter, for the configuration decides."""
    from eccache.domain.errors import ConfigError

    for extra in ({}, {"trust_client_ids": True}, {"trust_client_ids": "renderer.*"}):
        with pytest.raises(ConfigError, match="numbers its inputs"):
            site.start(Server(arguments={"mm_processor_cache_gb": 0}, extra=extra))


@pytest.mark.parametrize("isolated", [False, True], ids=["bypassed", "isolated"])
def test_tenants_never_share(filled: Site, isolated: bool) -> None:  # noqa: FBT001
    """Bypassed by default; on request isolated by salt, and then each finds its own."""
    extra = {"isolate_salted": True} if isolated else {}
    runs = []
    for salt in ("one", "two", "one", "two"):
        engine = filled.start(Server(extra=extra))
        runs.append(encoded(engine, salt=salt))
        stop(engine)
    assert ([[A], [A], [], []] if isolated else [[A]] * 4) == runs
    assert (3 if isolated else 1) == len(entry_files(filled.root))


# --- the store ------------------------------------------------------------------------------------------


def _copied_from_another_model(site: Site) -> None:
    """The entry under another model's namespace, put there by hand."""
    (file,) = entry_files(site.root)
    engine = site.start(Server(extra={"epoch": "2"}))
    encoded(engine)
    stop(engine)
    (other,) = set(entry_files(site.root)) - {file}
    shutil.copy(other, file)


def _renamed(site: Site) -> None:
    """Another input's file, renamed to this one's name."""
    (file,) = entry_files(site.root)
    engine = site.start(Server())
    encoded(engine, attrs.evolve(PICTURE, id=digest(2), fields=DOG))
    stop(engine)
    (other,) = set(entry_files(site.root)) - {file}
    other.rename(file)


def _swapped(site: Site) -> None:
    """Two inputs' files in each other's place."""
    (file,) = entry_files(site.root)
    engine = site.start(Server())
    encoded(engine, attrs.evolve(PICTURE, id=digest(2), fields=DOG))
    stop(engine)
    (other,) = set(entry_files(site.root)) - {file}
    aside = file.with_suffix(".aside")
    file.rename(aside)
    other.rename(file)
    aside.rename(other)


@pytest.mark.parametrize("plot", [_copied_from_another_model, _renamed, _swapped])
def test_files_in_each_others_place_are_misses(filled: Site, plot: Callable[[Site], None]) -> None:
    """The name says one thing and the entry another: the encoder runs, and stores the right one."""
    plot(filled)
    for expected in ([A], []):
        engine = filled.start(Server())
        assert expected == encoded(engine)
        stop(engine)


def test_colliding_hashes_are_misses(filled: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs forced onto one 64-bit hash: one name, and never each other's output."""
    real = EntryRef.for_mm_hash

    def colliding(*arguments: Any, **more: Any) -> EntryRef:
        ref = real(*arguments, **more)
        key = EntryKey(ref.key.model_name, 7, ref.key.dtype)
        return attrs.evolve(ref, key=key)

    monkeypatch.setattr(EntryRef, "for_mm_hash", colliding)
    puts: list[EntryRef] = []
    real_put = DiskStore.put

    def put(self: DiskStore, ref: EntryRef, frame: Frame) -> PutOutcome:
        puts.append(ref)
        return real_put(self, ref, frame)

    monkeypatch.setattr(DiskStore, "put", put)
    for number, expected in ((1, True), (2, True), (2, False), (1, True), (1, False)):
        engine = filled.start(Server())
        assert ([digest(number)] if expected else []) == encoded(
            engine, attrs.evolve(PICTURE, id=digest(number))
        )
        stop(engine)
    assert {7} == {ref.key.chunk_hash for ref in puts}


# --- adapters -------------------------------------------------------------------------------------------


def test_an_adapter_is_shared_by_its_content(site: Site, tmp_path: Path) -> None:
    """One name, two contents: never each other's; an adapter that nobody knows: bypassed."""
    from vllm.lora.request import LoRARequest

    folders = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(name.encode())
        folders.append(folder)
    lora = Server(arguments={"enable_lora": True, "enable_tower_connector_lora": True})
    adapted = attrs.evolve(PICTURE, id=f"a:{A}")
    known: dict[str, list[list[str]]] = {}
    for folder in (folders[0], folders[1], folders[0], tmp_path / "hub"):
        engine = site.start(lora)
        adapter = LoRARequest("a", 1, str(folder))
        connector = engine.scheduler.ec_connector
        contents = connector._scheduler._admission._knowledge.adapter.__self__  # noqa: SLF001
        contents._since_ns = 1 << 62  # noqa: SLF001 - the files are as old as the test
        _wait_until_known(contents, adapter)
        runs = known.setdefault(folder.name, [])
        runs.append(_encoded_with(engine, adapted, adapter))
        stop(engine)
    ran = [f"a:{A}"]
    assert {"first": [ran, []], "second": [ran], "hub": [ran]} == known


def _wait_until_known(contents: Any, adapter: Any) -> None:
    import threading

    contents.of(adapter)
    for thread in threading.enumerate():
        if thread.name == "eccache-adapter":
            thread.join(20)


def _encoded_with(engine: Engine, one: Input, adapter: Any) -> list[str]:
    request = make_request("r", one)
    request.lora_request = adapter
    for feature in request.mm_features:
        feature.mm_hash = A
    engine.serve(request)
    return engine.runners[0].encoded


# --- weights of a running engine --------------------------------------------------------------------------


def test_after_a_reset_an_engine_neither_serves_nor_stores(filled: Site) -> None:
    """The worker's dict is emptied; the scheduler, told by nobody, knows before its next look-up."""
    engine = filled.start(Server())
    assert [] == encoded(engine)
    engine.runners[0].encoder_cache.clear()
    engine.scheduler.reset_encoder_cache()
    assert [A] == encoded(engine)
    new = attrs.evolve(PICTURE, id=digest(2), fields=DOG)
    assert [digest(2)] == encoded(engine, new)
    stop(engine)
    assert 1 == len(entry_files(filled.root))


def test_an_operators_word_keeps_an_engine_serving(filled: Site) -> None:
    """Sleep and wake at the level that keeps weights, say."""
    engine = filled.start(Server(extra={"fixed_weights": True}))
    assert [] == encoded(engine)
    engine.runners[0].encoder_cache.clear()
    engine.scheduler.reset_encoder_cache()
    new = attrs.evolve(PICTURE, id=digest(2), fields=DOG)
    assert [digest(2)] == encoded(engine, new)
    stop(engine)
    assert [] == encoded(filled.start(Server()), PICTURE, attrs.evolve(new, offset=9))
