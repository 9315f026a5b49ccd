"""What an input is, beyond its id: digests of vLLM's own objects."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import attrs
import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from vllm.multimodal.inputs import MultiModalBatchedField, MultiModalFieldElem, MultiModalKwargsItem

from eccache.adapters.vllm.content import (
    MIN_NBYTES_BESIDE,
    Contents,
    KnownContent,
    promise_content,
    promised_content,
)
from tests.unit.vllm.requests import Input, digest, make_request

PIXELS = torch.arange(4 * 1176, dtype=torch.float32).reshape(4, 1176)
GRID = torch.tensor([1, 2, 2])
FIELDS: dict[str, Any] = {"pixel_values": PIXELS, "image_grid_thw": GRID}
A = digest(1)
LARGE = torch.ones(MIN_NBYTES_BESIDE // 4)


@pytest.fixture
def contents() -> Iterator[Contents]:
    """With the hasher that vLLM uses by default."""
    made = Contents("blake3")
    yield made
    made.close()


def feature(**fields: Any) -> Any:
    """One of vLLM's inputs."""
    return Input(id=A, offset=0, fields=fields or FIELDS).feature()


def digest_of(contents: Contents, one: Any) -> str | None:
    """The digest of an input whose data is at hand."""
    content = contents.of(one)
    assert content is not None
    return content.digest()


def test_equal_content_has_one_digest_whatever_its_id(contents: Contents) -> None:
    """Another request's copy of the same pixels."""
    first = Input(id=A, offset=0, fields=FIELDS).feature()
    second = Input(id="other", offset=7, fields={n: v.clone() for n, v in FIELDS.items()}).feature()
    assert digest_of(contents, first) == digest_of(contents, second)
    assert digest_of(contents, first) == digest_of(Contents("blake3"), second)


def _one_bit(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    changed.view(torch.uint8).view(-1)[-1] ^= 1
    return changed


OTHERS: dict[str, dict[str, Any]] = {
    "one bit": FIELDS | {"pixel_values": _one_bit(PIXELS)},
    "another grid": FIELDS | {"image_grid_thw": torch.tensor([1, 1, 4])},
    "another shape": FIELDS | {"pixel_values": PIXELS.reshape(8, 588)},
    "another type": FIELDS | {"pixel_values": PIXELS.view(torch.int32)},
    "rows in another order": FIELDS | {"pixel_values": PIXELS.flip(0)},
    "a field more": FIELDS | {"timestamps": 3.0},
    "a field less": {"pixel_values": PIXELS},
    "a field renamed": {"pixel_values_videos": PIXELS, "image_grid_thw": GRID},
    "a list of rows": FIELDS | {"pixel_values": list(PIXELS)},
    "rows grouped otherwise": FIELDS | {"pixel_values": [PIXELS[:1], PIXELS[1:]]},
    "grouped otherwise again": FIELDS | {"pixel_values": [PIXELS[:3], PIXELS[3:]]},
    "a numpy array": FIELDS | {"pixel_values": PIXELS.numpy()},
    "nothing": FIELDS | {"pixel_values": PIXELS[:0]},
    "nothing of another width": FIELDS | {"pixel_values": PIXELS[:0, :7]},
    "text": FIELDS | {"pixel_values": "PIXELS"},
    "a number": FIELDS | {"pixel_values": 1},
    "a truth": FIELDS | {"pixel_values": True},
    "a float": FIELDS | {"pixel_values": 1.0},
}


def test_different_contents_have_different_digests(contents: Contents) -> None:
    """Each of these, and the input itself, differs from every other."""
    digests = [digest_of(contents, feature(**fields)) for fields in [FIELDS, *OTHERS.values()]]
    assert None not in digests
    assert len(OTHERS) + 1 == len(set(digests))


def test_a_kind_is_part_of_a_content(contents: Contents) -> None:
    """The same tensor as a picture and as a clip goes through another path."""
    picture = Input(id=A, offset=0, fields={"x": PIXELS})
    clip = attrs.evolve(picture, modality="video")
    assert digest_of(contents, picture.feature()) != digest_of(contents, clip.feature())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5, dtype=torch.bfloat16),
        PIXELS.t(),
        PIXELS[:, ::2],
        PIXELS.expand(2, 4, 1176),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(2, 3, dtype=torch.complex64),
        torch.nn.Parameter(PIXELS),
    ],
    ids=["scalar", "transposed", "strided", "expanded", "bool", "complex", "with gradient"],
)
def test_any_dense_tensor_has_a_digest(contents: Contents, tensor: torch.Tensor) -> None:
    """That of its values, not of how they lie in memory."""
    expected = digest_of(contents, feature(x=tensor.detach().clone().contiguous()))
    assert expected is not None
    assert expected == digest_of(contents, feature(x=tensor))


@given(st.lists(st.binary(max_size=8), max_size=5), st.lists(st.binary(max_size=8), max_size=5))
def test_pieces_can_not_be_shifted(first: list[bytes], second: list[bytes]) -> None:
    """Two lists of arrays have one digest only if they are equal, wherever one ends and the next begins."""
    contents = Contents("blake3")
    digests = {
        digest_of(contents, feature(x=[np.frombuffer(part, dtype=np.uint8) for part in parts]))
        for parts in (first, second)
    }
    assert (1 if first == second else 2) == len(digests)


@pytest.mark.parametrize(("algorithm", "digits"), [("blake3", 64), ("sha256", 64), ("sha512", 128)])
def test_the_hasher_is_vllms(algorithm: str, digits: int) -> None:
    """Whoever may not use blake3 does not get it here either."""
    found = digest_of(Contents(algorithm), feature())
    assert found is not None
    assert digits == len(found)
    others = {digest_of(Contents(name), feature()) for name in ("blake3", "sha256", "sha512")}
    assert 3 == len(others)


def _elements(**values: Any) -> MultiModalKwargsItem:
    field = MultiModalBatchedField()
    return MultiModalKwargsItem(
        {name: MultiModalFieldElem(data=value, field=field) for name, value in values.items()}
    )


ABSENT: dict[str, Any] = {
    "no data": None,
    "no fields": _elements(),
    "kept in the engine": _elements(pixel_values=None, image_grid_thw=GRID),
    "a handle for workers": _elements(address=1, monotonic_id=2, signature=[1, 2]),
    "on a device": _elements(pixel_values=torch.empty(4, device="meta")),
    "partly on a device": _elements(pixel_values=[PIXELS, torch.empty(4, device="meta")]),
}


@pytest.mark.parametrize("data", ABSENT.values(), ids=ABSENT)
def test_what_is_not_at_hand_is_not_guessed(contents: Contents, data: Any) -> None:
    """Nor is anything waited for."""
    one = feature()
    one.data = data
    assert contents.of(one) is None


@pytest.mark.parametrize(
    "value", [object(), {"a": 1}, PIXELS.to_sparse()], ids=["object", "dict", "sparse"]
)
def test_data_of_a_kind_without_bytes_has_no_digest(contents: Contents, value: object) -> None:
    """And says so: its input is then not taken for a known one."""
    assert digest_of(contents, feature(x=value)) is None


def test_a_digest_is_taken_once_for_the_same_data(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each later request of a picture that vLLM keeps costs nothing."""
    one = feature()
    content = contents.of(one)
    assert content is not None
    assert content.digest()
    monkeypatch.setattr(contents, "_new_hash", None)
    again = Input(id=A, offset=30).feature()
    again.data = one.data
    assert content is contents.of(again)
    assert content.digest() == digest_of(contents, again)


def test_data_that_is_gone_is_forgotten(contents: Contents) -> None:
    """Nothing keeps a clip in memory, and another one at its address is another one."""
    for number in range(4):  # each looks through all that vLLM has loaded
        one = feature(x=torch.full((4,), number))
        content = contents.of(one)
        assert content is not None
        if number % 2:
            assert digest_of(Contents("blake3"), one) == content.digest()
        data = weakref.ref(one.data)
        del one
        gc.collect()
        assert data() is None, "also where nobody asked for the digest"
        assert (number % 2 == 0) is (content.digest() is None)
    assert {} == contents._known  # noqa: SLF001


def test_a_digest_is_taken_beside_the_scheduler(contents: Contents) -> None:
    """Once begun it is there without anybody waiting for it."""
    one = feature(pixels=[LARGE, LARGE.bfloat16()])
    content = contents.of(one)
    assert content is not None
    contents.start(content)
    give_up_at = time.monotonic() + 20
    while not content._taken:  # type: ignore[attr-defined] # noqa: SLF001
        assert time.monotonic() < give_up_at
    assert digest_of(Contents("blake3"), one) == content.digest()


def test_a_small_content_wakes_no_thread(contents: Contents) -> None:
    """It is hashed sooner than Python's lock would have gone there and back."""
    for one in (feature(), feature(pixels=LARGE[1:]), feature(pixels=LARGE.to_sparse())):
        content = contents.of(one)
        assert content is not None
        contents.start(content)
    contents.start(KnownContent("ab" * 32))
    assert contents._thread is None  # noqa: SLF001


def test_what_is_gone_has_no_bytes(contents: Contents) -> None:
    """Nobody keeps the data of a request that ended before its digest was asked for."""
    one = feature(pixels=LARGE)
    content = contents.of(one)
    one.data = None
    contents.start(content)  # type: ignore[arg-type]
    assert contents._thread is None  # noqa: SLF001


def test_without_a_thread_a_digest_is_taken_by_whoever_needs_it(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that has no more threads may have some later."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    one = feature(pixels=LARGE)
    content = contents.of(one)
    assert content is not None
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        contents.start(content)
    assert content.digest() is not None
    contents.start(content)
    assert contents._thread is not None  # noqa: SLF001


def test_whatever_data_raises_it_has_no_digest(contents: Contents) -> None:
    """Also for want of memory: the step that asks must go out, with what was promised in it."""

    class Raising:
        def data_ptr(self) -> int:
            """Look like a tensor."""
            return 0

        @property
        def dtype(self) -> str:
            """Fail."""
            raise MemoryError

    one = feature(pixels=Raising())
    assert digest_of(contents, one) is None


def test_any_number_of_threads_get_one_answer(contents: Contents) -> None:
    """Who asks first takes it, the others wait for that."""
    large = feature(x=torch.zeros(8 << 20, dtype=torch.uint8))
    content = contents.of(large)
    assert content is not None
    start, found = threading.Barrier(8), list[str | None]()

    def ask() -> None:
        start.wait()
        found.append(content.digest())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 8 == len(found)
    assert {content.digest()} == set(found)


def test_after_the_end_nothing_is_left(contents: Contents) -> None:
    """The thread ends, and what is asked for then is taken by whoever asks."""
    one, others = feature(), set(threading.enumerate())
    content = contents.of(one)
    assert content is not None
    contents.start(content)
    contents.close()
    contents.close()
    for thread in set(threading.enumerate()) - others:
        thread.join(20)
        assert not thread.is_alive()
    assert digest_of(contents, feature(x=1))


# --- what a producer says -------------------------------------------------------------------------------


def test_a_consumer_gets_the_digest_that_the_producer_took(contents: Contents) -> None:
    """Beside the sizes, through whatever proxy stands between them."""
    described: dict[str, Any] = {"item_indices": [0], "metadata": {}}
    one = feature()
    content = contents.of(one)
    promise_content(described, content)
    request = make_request("r", Input(id=A, offset=0), params={A: described})
    said = promised_content(request, A)
    assert said is not None
    assert content is not None
    assert content.digest() == said.digest()


def test_what_is_not_known_is_not_promised(contents: Contents) -> None:
    """Neither for an input out of reach, nor for one without a digest."""
    described: dict[str, Any] = {}
    promise_content(described, None)
    promise_content(described, contents.of(feature(x=object())))
    assert {} == described


@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        {},
        {A: None},
        {A: {}},
        {A: {"content": None}},
        {A: {"content": 5}},
        {A: {"content": "ab"}},
        {A: {"content": "AB" * 32}},
        {A: {"content": "ab" * 32 + "\n"}},
        {A: {"content": "ab" * 48}},
        {A: {"content": "x" * 10_000_000}},
        {"other": {"content": "ab" * 32}},
    ],
    ids=str,
)
def test_a_clients_word_is_checked(params: Any) -> None:
    """What is no digest is nothing."""
    request = make_request("r", Input(id=A, offset=0))
    request.ec_transfer_params = params
    assert promised_content(request, A) is None
