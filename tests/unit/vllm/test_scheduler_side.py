"""The scheduler's side, call by call, with vLLM's real requests."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eccache.adapters.vllm.admission import Admission, Knowledge
from eccache.adapters.vllm.content import Contents
from eccache.adapters.vllm.metadata import NO_WORK, ReportMetadata
from eccache.adapters.vllm.scheduler_side import SchedulerRole, SchedulerSide
from eccache.domain.policy import SharingPolicy
from eccache.ports.lookup import Item, PermittedSave, WorkerReport
from tests.unit.vllm.fake_lookup import DrainedRecording, FakeLookup
from tests.unit.vllm.requests import Input, digest, make_request

A, B = digest(1), digest(2)
GRID_ONLY: dict[str, Any] = {"image_grid_thw": torch.tensor([1, 8, 8])}
BOTH = SchedulerRole(saves=True, loads=True)


class Desk:
    """A scheduler's side with a fake behind it, and the calls of one step in vLLM's order."""

    def __init__(
        self,
        role: SchedulerRole = BOTH,
        policy: SharingPolicy | None = None,
        knowledge: Knowledge | None = None,
    ) -> None:
        self.lookup = FakeLookup()
        self.telemetry = DrainedRecording()
        self.intact = True
        admission = Admission(
            policy or SharingPolicy(),
            knowledge or Knowledge(),
            lambda modality: {f"{modality}_grid_thw"},
        )
        self.side = SchedulerSide(self.lookup, admission, role, self.telemetry, lambda: self.intact)

    def end_step(self, *freed: str) -> Any:
        """End a step in which *freed* left the accelerator."""
        return self.side.build_connector_meta(
            SimpleNamespace(free_encoder_mm_hashes=list(freed))
        ).plan

    def schedule(self, request: Any, computed: int = 0) -> Any:
        """One step in which the scheduler has room for every input of *request*."""
        if self.side.ensure_cache_available(request, computed):
            indices = range(len(request.mm_features))
            for index in indices:
                self.side.has_cache_item(request.mm_features[index].identifier)
            for index in indices:
                self.side.update_state_after_alloc(request, index)
        return self.end_step()


@pytest.fixture
def desk() -> Desk:
    """A server that stores and serves."""
    return Desk()


def test_a_stored_input_is_promised_and_loaded(desk: Desk) -> None:
    """What a look-up found is promised, becomes a load of that step, and is not saved again."""
    desk.lookup.stored = {A}
    plan = desk.schedule(make_request("r", Input(id=A, offset=0)))
    assert [A] == [load.mm_hash for load in plan.loads]
    assert () == plan.saves


def test_an_absent_input_may_be_saved(desk: Desk) -> None:
    """What is not stored is encoded, and the workers may save it."""
    plan = desk.schedule(make_request("r", Input(id=A, offset=0)))
    assert ((), (PermittedSave(A),)) == (plan.loads, plan.saves)


def test_a_plan_holds_for_one_step(desk: Desk) -> None:
    """The step after an allocation has nothing to do, and says so with one shared object."""
    desk.schedule(make_request("r", Input(id=A, offset=0)))
    empty = SimpleNamespace(free_encoder_mm_hashes=[])
    assert desk.side.build_connector_meta(empty) is NO_WORK


def test_a_request_waits_for_a_slow_look_up(desk: Desk) -> None:
    """While a look-up is under way the request is deferred, and asked for again."""
    desk.lookup.stored = desk.lookup.slow = {A}
    request = make_request("r", Input(id=A, offset=0))
    assert desk.side.ensure_cache_available(request, 0) is False
    desk.lookup.slow = set()
    assert desk.side.ensure_cache_available(request, 0) is True


def test_only_what_is_still_needed_is_looked_up(desk: Desk) -> None:
    """An input whose tokens are computed, or that lies on the accelerator, is not looked up."""
    desk.schedule(make_request("first", Input(id=B, offset=0)))
    desk.lookup.ensured.clear()
    request = make_request(
        "r", Input(id=A, offset=0), Input(id=B, offset=10), Input(id=digest(3), offset=20)
    )
    desk.side.ensure_cache_available(request, 4)
    assert [("r", (Item(digest(3), 4),))] == desk.lookup.ensured


def test_the_rows_are_those_that_are_embeddings(desk: Desk) -> None:
    """A placeholder with tokens that are no embeddings needs fewer rows than it is long."""
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0, rows=3, length=9)), 0)
    assert [("r", (Item(A, 3),))] == desk.lookup.ensured


def test_an_input_without_rows_is_nothing(desk: Desk) -> None:
    """A placeholder without a single embedding is neither looked up nor counted."""
    assert desk.side.ensure_cache_available(
        make_request("r", Input(id=A, offset=0, rows=0, length=5)), 0
    )
    assert [] == desk.lookup.ensured


def test_a_settled_request_is_not_looked_up_again(desk: Desk) -> None:
    """Decoding steps ask nothing of the cache."""
    request = make_request("r", Input(id=A, offset=0))
    desk.schedule(request)
    desk.lookup.ensured.clear()
    assert all(desk.side.ensure_cache_available(request, 5 + step) for step in range(100))
    assert [] == desk.lookup.ensured


def test_preemption_looks_up_again(desk: Desk) -> None:
    """A request that starts over needs inputs again that it had passed."""
    request = make_request("r", Input(id=A, offset=0))
    desk.side.ensure_cache_available(request, 4)
    assert [] == desk.lookup.ensured
    desk.side.ensure_cache_available(request, 0)
    assert [("r", (Item(A, 4),))] == desk.lookup.ensured


def test_leaving_the_accelerator_looks_up_again(desk: Desk) -> None:
    """An input that was on the accelerator when its request came, and left, is looked up then."""
    desk.schedule(make_request("first", Input(id=A, offset=0)))
    request = make_request("r", Input(id=A, offset=0))
    desk.side.ensure_cache_available(request, 0)
    desk.lookup.ensured.clear()
    desk.lookup.stored = {A}
    desk.end_step(A)
    desk.side.ensure_cache_available(request, 0)
    assert [("r", (Item(A, 4),))] == desk.lookup.ensured
    assert desk.side.has_cache_item(A)


def test_being_asked_means_not_on_the_accelerator(desk: Desk) -> None:
    """The host may clear its accelerator cache without a word; its question says so."""
    desk.schedule(make_request("first", Input(id=A, offset=0)))
    desk.lookup.ensured.clear()
    desk.side.ensure_cache_available(make_request("second", Input(id=A, offset=0)), 0)
    assert desk.side.has_cache_item(A) is False  # asked although it was there: it was cleared
    desk.side.ensure_cache_available(make_request("third", Input(id=A, offset=0)), 0)
    assert [("third", (Item(A, 4),))] == desk.lookup.ensured


def test_a_streaming_request_gets_new_inputs(desk: Desk) -> None:
    """Inputs that are added to a live request are looked up too."""
    request = make_request("r", Input(id=A, offset=0))
    desk.schedule(request)
    desk.lookup.ensured.clear()
    request.mm_features.append(Input(id=B, offset=8).feature())
    desk.side.ensure_cache_available(request, 8)
    assert [("r", (Item(B, 4),))] == desk.lookup.ensured


def test_the_same_input_twice_is_one_item(desk: Desk) -> None:
    """One picture twice in a prompt is one look-up, needed until its last place is passed."""
    request = make_request("r", Input(id=A, offset=0), Input(id=A, offset=20))
    desk.side.ensure_cache_available(request, 10)
    assert [("r", (Item(A, 4),))] == desk.lookup.ensured


def test_one_id_with_two_sizes_in_one_request_is_bypassed(desk: Desk) -> None:
    """A promise is by id alone; where that can't tell the rows, there is none."""
    desk.lookup.stored = {A}
    request = make_request("r", Input(id=A, offset=0, rows=4), Input(id=A, offset=20, rows=9))
    assert ((), ()) == (desk.schedule(request).loads, desk.schedule(request).saves)
    assert 1 == desk.telemetry.counters["bypassed:conflict"]


def test_one_id_with_another_size_is_never_given_the_others_rows(desk: Desk) -> None:
    """While a request holds a promise of 4 rows, one that needs 9 under the same id gets none."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("short", Input(id=A, offset=0, rows=4)), 0)
    longer = make_request("long", Input(id=A, offset=0, rows=9))
    desk.side.ensure_cache_available(longer, 0)
    assert desk.side.has_cache_item(A) is False
    assert 1 == desk.telemetry.counters["bypassed:conflict"]


def test_an_id_is_free_for_another_size_once_its_request_is_finished(desk: Desk) -> None:
    """The rule about rows holds among live requests only."""
    short = make_request("short", Input(id=A, offset=0, rows=4))
    desk.side.ensure_cache_available(short, 0)
    desk.side.request_finished(short)
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("long", Input(id=A, offset=0, rows=9)), 0)
    assert desk.side.has_cache_item(A) is True


@pytest.mark.parametrize(
    ("reason", "make"),
    [
        ("salted", lambda: make_request("r", Input(id=A, offset=0), salt="tenant")),
        ("client_id", lambda: make_request("r", Input(id="my-picture", offset=0))),
        (
            "passthrough",
            lambda: make_request("r", Input(id=A, offset=0, modality="prompt_embeds")),
        ),
        (
            "passthrough",
            lambda: make_request(
                "r", Input(id=A, offset=0, fields={"image_embeds": torch.zeros(4, 64)})
            ),
        ),
    ],
    ids=["salted", "client id", "prompt embedding", "image embedding"],
)
def test_what_is_bypassed_is_neither_stored_nor_served(desk: Desk, reason: str, make: Any) -> None:
    """A salted request, a client's own id, a client's own embedding: no look-up, no save, counted once."""
    request = make()
    desk.lookup.stored = {A, "my-picture"}
    plan = desk.schedule(request)
    desk.schedule(request)
    assert ((), ()) == (plan.loads, plan.saves)
    assert [] == desk.lookup.ensured
    assert 1 == desk.telemetry.counters[f"bypassed:{reason}"]


def test_a_salted_request_is_not_served_from_anothers_promise(desk: Desk) -> None:
    """A copy at hand for one request is not given to a salted one that names the same id."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("open", Input(id=A, offset=0)), 0)
    salted = make_request("salted", Input(id=A, offset=0), salt="tenant")
    plan = desk.schedule(salted)
    assert ((), ()) == (plan.loads, plan.saves)


def test_an_adapter_that_reaches_the_encoder_is_bypassed() -> None:
    """With adapters on the encoder, an adapter's name is not its content."""
    desk = Desk(knowledge=Knowledge(adapter=lambda _: ""))
    request = make_request("r", Input(id=A, offset=0))
    request.lora_request = SimpleNamespace(lora_name="x")
    assert () == desk.schedule(request).saves
    assert 1 == desk.telemetry.counters["bypassed:lora"]


def test_an_encoder_decoder_model_is_bypassed() -> None:
    """A True would make such a model skip an encoder whose output nothing loads."""
    desk = Desk(policy=SharingPolicy(encoder_decoder=True))
    desk.lookup.stored = {A}
    plan = desk.schedule(make_request("r", Input(id=A, offset=0)))
    assert ((), ()) == (plan.loads, plan.saves)


def test_a_trusted_client_id_is_stored() -> None:
    """An operator can name a pattern of ids that are shared, each bound to its content."""
    contents = Contents("sha256")
    desk = Desk(
        policy=SharingPolicy(trusted_ids=r"sha1-[0-9a-f]+"), knowledge=Knowledge(contents=contents)
    )
    trusted, other = Input(id="sha1-0a", offset=0), Input(id="sha1-0a/..", offset=9)
    request = make_request("r", trusted, other)
    content = contents.of(request.mm_features[0])
    assert content is not None
    assert (PermittedSave("sha1-0a", "", content.digest()),) == desk.schedule(request).saves
    contents.close()


def test_a_promise_is_for_the_request_that_was_ensured_last(desk: Desk) -> None:
    """Asked for an input that the present request does not have, the answer is a miss."""
    desk.lookup.stored = {A}
    desk.side.ensure_cache_available(make_request("a", Input(id=A, offset=0)), 0)
    desk.side.ensure_cache_available(make_request("b", Input(id=B, offset=0)), 0)
    assert desk.side.has_cache_item(A) is False


def test_a_promise_that_was_given_is_loaded_whatever_changed(desk: Desk) -> None:
    """Once True was said there is no way back, even if the request is unknown by then."""
    desk.lookup.stored = {A}
    request = make_request("r", Input(id=A, offset=0))
    desk.side.ensure_cache_available(request, 0)
    assert desk.side.has_cache_item(A)
    desk.side._tracked.clear()  # noqa: SLF001 - the fault to survive
    desk.side.update_state_after_alloc(request, 0)
    assert [A] == [load.mm_hash for load in desk.end_step().loads]


def test_a_producer_never_promises_and_never_defers() -> None:
    """The role `ec_producer` stores only."""
    desk = Desk(SchedulerRole(saves=True, loads=False))
    desk.lookup.stored = desk.lookup.slow = {A}
    plan = desk.schedule(make_request("r", Input(id=A, offset=0)))
    assert ((), (PermittedSave(A),)) == (plan.loads, plan.saves)
    assert [] == desk.lookup.ensured


def test_a_consumer_never_saves() -> None:
    """The role `ec_consumer` serves only."""
    desk = Desk(SchedulerRole(saves=False, loads=True))
    plan = desk.schedule(make_request("r", Input(id=A, offset=0)))
    assert ((), ()) == (plan.loads, plan.saves)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({A: {"item_indices": [0]}}, True),
        (None, False),
        ({B: {}}, False),
        ({A: "x"}, False),
        ([A], False),
        ("x", False),
        (7, False),
    ],
    ids=["named", "none", "another", "no mapping", "list", "text", "number"],
)
def test_transfer_parameters_are_the_clients_words(
    desk: Desk,
    params: Any,
    expected: bool,  # noqa: FBT001
) -> None:
    """Only a mapping that names the input says that it is on its way; anything else says nothing."""
    desk.side.ensure_cache_available(make_request("r", Input(id=A, offset=0), params=params), 0)
    assert [("r", (Item(A, 4, expected=expected),))] == desk.lookup.ensured


def test_a_request_without_media_that_is_stored_is_served(desk: Desk) -> None:
    """A consumer can serve a request that carries only the grid."""
    desk.lookup.stored = {A}
    plan = desk.schedule(make_request("r", Input(id=A, offset=0, fields=GRID_ONLY)))
    assert [A] == [load.mm_hash for load in plan.loads]
    assert set() == desk.side.take_unavailable_requests()


@pytest.mark.parametrize(
    "fields",
    [GRID_ONLY, GRID_ONLY | {"image_embeds": None}, None],
    ids=["grid", "grid and empty embedding", "nothing"],
)
def test_a_request_without_media_that_nothing_can_supply_is_given_up(
    desk: Desk, fields: dict[str, Any] | None
) -> None:
    """It never reaches the encoder, which has nothing to work on, and is failed once."""
    request = make_request("r", Input(id=A, offset=0, fields=fields))
    assert desk.side.ensure_cache_available(request, 0) is False
    assert desk.side.ensure_cache_available(request, 0) is False
    assert {"r"} == desk.side.take_unavailable_requests()
    assert set() == desk.side.take_unavailable_requests()


def test_a_promise_without_an_encoder_behind_it_is_watched(desk: Desk) -> None:
    """If the copy of a request without media is given up before its load, so is the request."""
    desk.lookup.stored = {A}
    request = make_request("r", Input(id=A, offset=0, fields=GRID_ONLY))
    assert desk.side.ensure_cache_available(request, 0) is True
    desk.lookup.stored.clear()
    desk.lookup.ready.clear()
    assert desk.side.ensure_cache_available(request, 0) is False
    assert {"r"} == desk.side.take_unavailable_requests()


def test_a_request_without_media_for_an_output_on_the_accelerator_is_served(desk: Desk) -> None:
    """What lies on the accelerator needs neither copy nor media."""
    desk.schedule(make_request("first", Input(id=A, offset=0)))
    request = make_request("r", Input(id=A, offset=0, fields=GRID_ONLY))
    assert desk.side.ensure_cache_available(request, 0) is True


def test_a_finished_request_leaves_nothing_behind(desk: Desk) -> None:
    """After the last request, what is remembered is what lies on the accelerator, and no request."""
    requests = [make_request(str(n), Input(id=digest(n % 3), offset=0)) for n in range(9)]
    for request in requests:
        desk.schedule(request)
    for request in requests:
        desk.side.request_finished(request)
        desk.side.request_finished(request)
    side = desk.side
    assert [str(n) for n in range(9)] == desk.lookup.finished_ids
    assert ({}, {}, {}) == (side._tracked, side._by_item, side._claimed)  # noqa: SLF001
    assert {digest(0), digest(1), digest(2)} == side._resident  # noqa: SLF001


def test_reports_reach_the_ledger_and_the_statistics(desk: Desk) -> None:
    """What workers report is passed on once, and counted together with the scheduler's own."""
    desk.telemetry.count("hits", 2)
    report = WorkerReport(acks={1: 2}, counters={"loads": 3})
    desk.side.update_connector_output(
        SimpleNamespace(ec_connector_worker_meta=ReportMetadata(report))
    )
    stats = desk.side.take_stats()
    assert stats is not None
    assert [report] == desk.lookup.reports
    assert {"hits": 2, "loads": 3} == stats.data
    assert desk.side.take_stats() is None


def test_reports_that_came_aside_are_counted_once(desk: Desk) -> None:
    """Where vLLM drops what workers report, the counts come by another way."""
    aside = [WorkerReport(counters={"stored": 1}), WorkerReport(counters={"stored": 2})]
    desk.side._received_aside = lambda: [aside.pop()] if aside else []  # noqa: SLF001
    counted = [desk.side.take_stats() for _ in range(3)]
    assert [{"stored": 2}, {"stored": 1}, None] == [one and one.data for one in counted]


def test_foreign_worker_metadata_is_left_alone(desk: Desk) -> None:
    """Another connector's report, or none, is no report."""
    for foreign in (None, object()):
        desk.side.update_connector_output(SimpleNamespace(ec_connector_worker_meta=foreign))
    assert [] == desk.lookup.reports
