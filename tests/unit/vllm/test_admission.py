"""Which inputs of vLLM's requests are shared, as what, and when that ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from eccache.adapters.vllm.admission import Admission, Knowledge
from eccache.adapters.vllm.content import Contents
from eccache.adapters.vllm.metadata import ReportMetadata
from eccache.adapters.vllm.scheduler_side import SchedulerRole, SchedulerSide
from eccache.domain.policy import SharingPolicy
from eccache.ports.lookup import PermittedSave, WorkerReport
from tests.unit.vllm.fake_lookup import DrainedRecording, FakeLookup
from tests.unit.vllm.requests import Input, digest, make_request

A = digest(1)
CAT: dict[str, Any] = {
    "pixel_values": torch.zeros(64, 1176),
    "image_grid_thw": torch.tensor([1, 8, 8]),
}
DOG: dict[str, Any] = CAT | {"pixel_values": torch.ones(64, 1176)}
GRID_ONLY: dict[str, Any] = {"image_grid_thw": torch.tensor([1, 8, 8])}
CONTENTS = Contents("sha256")


def content_of(fields: dict[str, Any]) -> str:
    """The digest of a picture with these fields."""
    feature = Input(id="x", offset=0, fields=fields).feature()
    content = CONTENTS.of(feature)
    digest = None if content is None else content.digest()
    assert digest is not None
    return digest


class Desk:
    """A scheduler's side that knows contents, with a fake behind it."""

    def __init__(
        self,
        policy: SharingPolicy | None = None,
        *,
        loads: bool = True,
        **knowledge: Any,
    ) -> None:
        self.lookup = FakeLookup()
        self.telemetry = DrainedRecording()
        self.intact = True
        self.asked_if_intact = 0
        admission = Admission(
            policy or SharingPolicy(),
            Knowledge(contents=CONTENTS, **knowledge),
            lambda modality: {f"{modality}_grid_thw"},
        )
        self.side = SchedulerSide(
            self.lookup,
            admission,
            SchedulerRole(saves=True, loads=loads),
            self.telemetry,
            self._is_intact,
        )

    def _is_intact(self) -> bool:
        self.asked_if_intact += 1
        return self.intact

    def schedule(self, request: Any) -> Any:
        """One step in which there is room for every input of *request*."""
        if self.side.ensure_cache_available(request, 0):
            for index, feature in enumerate(request.mm_features):
                self.side.has_cache_item(feature.identifier)
                self.side.update_state_after_alloc(request, index)
        return self.end_step().plan

    def end_step(self) -> Any:
        """What comes at the end of each step; weights are replaced between steps."""
        return self.side.build_connector_meta(SimpleNamespace(free_encoder_mm_hashes=[]))

    def saves(self, request: Any) -> tuple[PermittedSave, ...]:
        """What may be saved of *request* in one step."""
        saves: tuple[PermittedSave, ...] = self.schedule(request).saves
        return saves

    def bypassed(self, reason: str) -> int:
        """How many inputs were bypassed for *reason*."""
        return self.telemetry.counters[f"bypassed:{reason}"]


def picture(fields: dict[str, Any] | None = CAT, identifier: str = A, **more: Any) -> Input:
    """A picture."""
    return Input(id=identifier, offset=0, fields=fields, **more)


# --- content --------------------------------------------------------------------------------------------


def test_an_entry_is_bound_to_what_the_encoder_reads() -> None:
    """One id, two pictures, one after the other: each is saved as what it is."""
    for fields in (CAT, DOG):
        saved = Desk().saves(make_request("r", picture(fields)))
        assert (PermittedSave(A, "", content_of(fields)),) == saved


def test_two_contents_of_one_id_at_a_time_are_never_mixed() -> None:
    """A promise names no request: while the cat's is alive, the dog under its id is computed."""
    desk = Desk()
    desk.lookup.stored = {A}
    cat, dog = make_request("cat", picture(CAT)), make_request("dog", picture(DOG))
    assert desk.side.ensure_cache_available(cat, 0)
    assert desk.side.ensure_cache_available(dog, 0)
    assert not desk.side.has_cache_item(A)
    assert 1 == desk.bypassed("conflict")
    desk.side.request_finished(cat)
    desk.side.request_finished(dog)
    assert desk.schedule(make_request("dog again", picture(DOG))).loads


def test_one_content_sent_twice_is_one() -> None:
    """Equal pixels in two requests at a time, each with its own copy."""
    desk = Desk()
    desk.lookup.stored = {A}
    copied = {name: value.clone() for name, value in CAT.items()}
    first = make_request("first", picture(CAT))
    assert desk.side.ensure_cache_available(first, 0)
    assert desk.schedule(make_request("second", picture(copied))).loads
    assert 0 == desk.bypassed("conflict")


def test_a_hash_whose_content_is_out_of_reach_is_shared_as_it_is() -> None:
    """Data that only workers can read: the id is all that the scheduler knows."""
    handle = {"address": 1, "monotonic_id": 2, "signature": [3]}
    saved = Desk().saves(make_request("r", picture(handle)))
    assert (PermittedSave(A),) == saved


def test_a_trusted_id_whose_content_is_out_of_reach_is_bypassed() -> None:
    """A client's word alone is not enough, whatever it looks like."""
    desk = Desk(SharingPolicy(trust_client_ids=True))
    handle = {"address": 1, "monotonic_id": 2, "signature": [3]}
    for identifier in ("my-picture", A):
        assert () == desk.saves(make_request(identifier, picture(handle, identifier)))
    assert 2 == desk.bypassed("unbound")
    assert (PermittedSave("my-picture", "", content_of(CAT)),) == desk.saves(
        make_request("with pixels", picture(CAT, "my-picture"))
    )


def test_without_binding_nothing_is_digested() -> None:
    """An operator who switches it off pays nothing."""
    desk = Desk(SharingPolicy(bind_content=False))
    assert (PermittedSave(A),) == desk.saves(make_request("r", picture()))


def test_data_without_a_digest_is_not_saved() -> None:
    """What should be known and is not is not replaced by the id's word."""
    fields = {"pixel_values": torch.zeros(64, 1176).to_sparse()}
    (saved,) = Desk().saves(make_request("r", picture(fields)))
    assert saved.content is None, "the fake passes on what the ledger leaves out"


# --- consumers that get no media ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "policy", "served"),
    [
        (None, SharingPolicy(), True),
        ({A: {"content": "ab" * 32}}, SharingPolicy(), True),
        ({A: {"content": "ab" * 32}}, SharingPolicy(trust_client_ids=True), True),
        ({A: {}}, SharingPolicy(trust_client_ids=True), False),
        (None, SharingPolicy(trust_client_ids=True), False),
    ],
)
def test_a_request_without_media_is_bound_by_its_producers_word(
    params: Any, policy: SharingPolicy, *, served: bool
) -> None:
    """Where clients are trusted, not without that word; else a hash stands for itself."""
    desk = Desk(policy)
    desk.lookup.stored = {A}
    request = make_request("r", picture(GRID_ONLY), params=params)
    assert served is bool(desk.schedule(request).loads)
    assert served is ({"r"} != desk.side.take_unavailable_requests())


def test_who_knows_the_id_alone_takes_what_it_stands_for_now() -> None:
    """A request without media and without a word joins the one that has the pixels."""
    desk = Desk()
    desk.lookup.stored = {A}
    pixels = make_request("pixels", picture(CAT))
    assert desk.side.ensure_cache_available(pixels, 0)
    assert desk.schedule(make_request("bare", picture(GRID_ONLY))).loads
    item = desk.lookup.ensured[-1][1][0]
    assert item.content is not None
    assert content_of(CAT) == item.content.digest()


def test_pixels_never_join_a_request_that_knows_the_id_alone() -> None:
    """What that one was promised may be of any content."""
    desk = Desk()
    desk.lookup.stored = {A}
    assert desk.side.ensure_cache_available(make_request("bare", picture(GRID_ONLY)), 0)
    assert not desk.schedule(make_request("pixels", picture(CAT))).loads
    assert 1 == desk.bypassed("conflict")


# --- salts and adapters ---------------------------------------------------------------------------------


def _adapted(name: str, fields: dict[str, Any] = CAT) -> Any:
    request = make_request("r", picture(fields, f"{name}:{A}"))
    request.lora_request = SimpleNamespace(lora_name=name)
    for feature in request.mm_features:
        feature.mm_hash = A
    return request


def test_salted_requests_are_isolated_where_an_operator_wants_it() -> None:
    """Each salt has entries of its own; without the setting they are bypassed."""
    assert () == Desk().saves(make_request("r", picture(), salt="tenant"))
    isolated = SharingPolicy(isolate_salted=True)
    variants = [
        Desk(isolated).saves(make_request("r", picture(), salt=salt))[0].variant
        for salt in (None, "", "one", "two", "one")
    ]
    assert "" == variants[0]
    assert 4 == len(set(variants))
    assert variants[2] == variants[4]


def test_a_salt_never_meets_another_at_one_time() -> None:
    """One id, two tenants: the second computes."""
    desk = Desk(SharingPolicy(isolate_salted=True))
    desk.lookup.stored = {A}
    assert desk.side.ensure_cache_available(make_request("one", picture(), salt="one"), 0)
    assert not desk.schedule(make_request("two", picture(), salt="two")).loads
    assert not desk.schedule(make_request("plain", picture())).loads
    assert 2 == desk.bypassed("conflict")


def test_an_adapter_of_known_content_shares_under_that() -> None:
    """The name before the id is no reason to bypass; what the name stands for is in the entry's name."""
    first, other = (
        Desk(adapter=lambda _, found=found: found).saves(_adapted("a"))[0] for found in ("11", "22")
    )
    assert (f"a:{A}", f"a:{A}") == (first.mm_hash, other.mm_hash)
    assert "" != first.variant != other.variant


def test_an_adapter_of_unknown_content_is_bypassed() -> None:
    """Its name says nothing."""
    desk = Desk(adapter=lambda _: "")
    assert () == desk.saves(_adapted("a"))
    assert 1 == desk.bypassed("lora")


def test_a_client_can_not_pretend_an_adapter() -> None:
    """The form `name:hash` is an adapter's only in a request that has one."""
    desk = Desk(adapter=lambda _: "11")
    assert () == desk.saves(make_request("r", picture(CAT, f"a:{A}")))
    assert 1 == desk.bypassed("client_id")


# --- shape and type -------------------------------------------------------------------------------------


def test_an_input_says_how_wide_and_of_what_type_its_rows_must_be() -> None:
    """As vLLM measured and was configured; where nothing is known, nothing is asked."""
    desk = Desk(widths={"image": 128}, dtype="bfloat16")
    desk.schedule(make_request("r", picture(), Input(id=digest(2), offset=9, modality="video")))
    image, video = desk.lookup.ensured[0][1]
    assert (128, "bfloat16") == (image.width, image.dtype)
    assert (None, "bfloat16") == (video.width, video.dtype)


def _report(*dtypes: str) -> Any:
    report = WorkerReport(made=frozenset(dtypes))
    return SimpleNamespace(ec_connector_worker_meta=ReportMetadata(report))


def test_what_the_encoder_makes_goes_before_what_it_was_configured_for() -> None:
    """A model may make another type than vLLM thinks; then that is what an entry must be."""
    desk = Desk(dtype="bfloat16")
    for number, (made, expected) in enumerate(
        [((), "bfloat16"), (("float32",), "float32"), (("float16",), None)]
    ):
        desk.side.update_connector_output(_report(*made))
        desk.schedule(make_request(f"r{number}", picture(CAT, digest(number))))
        assert expected == desk.lookup.ensured[-1][1][0].dtype


# --- weights that are replaced --------------------------------------------------------------------------


def test_after_a_reset_nothing_is_stored_or_served() -> None:
    """Neither to new requests nor to those that were promised something."""
    desk = Desk()
    desk.lookup.stored = {A}
    promised = make_request("promised", picture())
    assert desk.side.ensure_cache_available(promised, 0)
    desk.end_step()
    desk.intact = False
    assert desk.side.ensure_cache_available(promised, 0), "it is settled"
    assert not desk.side.has_cache_item(A)
    for request in (promised, make_request("new", picture())):
        plan = desk.schedule(request)
        assert ((), ()) == (plan.loads, plan.saves)
    assert 1 == desk.bypassed("weights")
    assert "promised" in desk.lookup.finished_ids
    assert not desk.side.is_shared(promised, A)
    assert desk.side.content(promised, A) is None
    (event,) = desk.telemetry.named("vllm.weights.replaced")
    assert "restart" in str(event.fields["remedy"])


def test_a_reset_is_for_good() -> None:
    """What came after it can't be told from what came before."""
    desk = Desk()
    desk.intact = False
    desk.schedule(make_request("first", picture()))
    desk.intact = True
    assert () == desk.saves(make_request("second", picture()))
    assert 1 == len(desk.telemetry.named("vllm.weights.replaced"))


def test_a_request_without_media_fails_after_a_reset() -> None:
    """Its promise is void, and there is nothing to run the encoder on."""
    desk = Desk()
    desk.lookup.stored = {A}
    request = make_request("bare", picture(GRID_ONLY))
    assert desk.side.ensure_cache_available(request, 0)
    desk.end_step()
    desk.intact = False
    assert not desk.side.ensure_cache_available(request, 0)
    assert {"bare"} == desk.side.take_unavailable_requests()


def test_a_decoding_request_asks_nothing() -> None:
    """The watch costs a system call; a request with nothing to do makes none."""
    desk = Desk()
    request = make_request("r", picture())
    desk.schedule(request)
    asked = desk.asked_if_intact
    for computed in range(5, 50):
        assert desk.side.ensure_cache_available(request, computed)
        desk.end_step()
    assert asked == desk.asked_if_intact


def test_the_weights_are_asked_about_once_a_step() -> None:
    """However many requests come at once: the answer changes between steps, and each costs a system call."""
    desk = Desk()
    desk.lookup.stored = {A}
    for number in range(3):
        requests = [make_request(f"{number} {name}", picture()) for name in range(5)]
        for request in requests:
            desk.side.ensure_cache_available(request, 0)
            assert desk.side.has_cache_item(A)
        desk.end_step()
    assert 3 == desk.asked_if_intact
