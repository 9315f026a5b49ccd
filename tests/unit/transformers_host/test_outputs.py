"""Outputs are taken apart, packed, and made again without a difference, or not at all."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from transformers.modeling_outputs import BaseModelOutput, BaseModelOutputWithPooling
from transformers.utils import ModelOutput

from eccache.adapters.transformers.bypass import Bypass, UncacheableError
from eccache.adapters.transformers.output_tree import OutputTree, join, made_again, take_apart
from eccache.adapters.transformers.packing import pack, unpack

CPU = torch.device("cpu")
NOTHING: frozenset[str] = frozenset()
DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Tensors of any form, also empty, scalar, or with strides."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    made = torch.randint(0, 2, shape).to(draw(st.sampled_from(DTYPES)))
    return made.mT if draw(st.booleans()) and made.dim() >= 2 else made


leaves = st.one_of(tensors(), st.integers(), st.none(), st.text(max_size=3))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(
            BaseModelOutput, last_hidden_state=tensors(), attentions=st.lists(inner).map(tuple)
        ),
    ),
    max_leaves=8,
)


def same(one: object, other: object) -> bool:
    """Whether two values are equal in every type, shape and bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        assert isinstance(other, torch.Tensor)
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and torch.equal(one.float(), other.float())
    if isinstance(one, ModelOutput):
        assert isinstance(other, ModelOutput)
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        assert isinstance(other, (list, tuple))
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@hypothesis.given(values)
def test_any_output_comes_back_as_it_was(value: object) -> None:
    """Through the form in which it is stored."""
    tree = take_apart(value, NOTHING, CPU)
    again = made_again(unpack(pack(tree), CPU), ())
    assert same(value, again)


@hypothesis.given(st.binary(max_size=200))
def test_other_bytes_are_refused(noise: bytes) -> None:
    """What was not packed is not unpacked."""
    with pytest.raises(ValueError, match=r"."):
        unpack(torch.tensor(list(noise), dtype=torch.uint8), CPU)


PACKED = pack(take_apart(BaseModelOutput(torch.arange(40.0)), NOTHING, CPU))


@pytest.mark.parametrize("length", range(0, PACKED.numel(), 16))
def test_a_part_is_refused(length: int) -> None:
    """So is a packed output without its end, or with more than its end."""
    with pytest.raises(ValueError, match=r"."):
        unpack(PACKED[:length], CPU)
    with pytest.raises(ValueError, match="more bytes than tensors"):
        unpack(torch.cat([PACKED, PACKED[: length + 1]]), CPU)


@pytest.mark.parametrize(
    "wrong", [PACKED.to(torch.int16), PACKED.reshape(2, -1)], ids=["dtype", "rank"]
)
def test_another_form_is_refused(wrong: torch.Tensor) -> None:
    """A packed output is one row of bytes."""
    with pytest.raises(ValueError, match="1-D bytes"):
        unpack(wrong, CPU)


ROOTS: list[Any] = [
    {"tensor": 1},
    {"tensor": -1},
    {"tensor": "0"},
    {"output": "OrderedDict", "fields": {}, "dropped": []},
    {"output": "BaseModelOutput", "fields": {}, "dropped": ["no_field"]},
    {"unknown": 1},
    ["list"],
    7,
]


@pytest.mark.parametrize("root", ROOTS, ids=str)
def test_a_tree_that_take_apart_never_makes_is_refused(root: Any) -> None:  # noqa: ANN401
    """No name in an entry leads to anything but a framework's output."""
    with pytest.raises(UncacheableError):
        made_again(OutputTree(root, (torch.zeros(1),)), ("os", "builtins"))


UNSTORABLE = {
    "object": (object(), Bypass.OUTPUT),
    "subclass": (torch.nn.Parameter(torch.zeros(1)), Bypass.OUTPUT),
    "sparse": (torch.eye(2).to_sparse(), Bypass.OUTPUT),
    "elsewhere": (torch.zeros(1, device="meta"), Bypass.OUTPUT),
    "gradient": (torch.zeros(1, requires_grad=True), Bypass.SCOPE),
}


@pytest.mark.parametrize(("value", "reason"), UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_cannot_be_stored_is_named(value: object, reason: Bypass) -> None:
    """And no other call of the method is tried."""
    with pytest.raises(UncacheableError) as caught:
        take_apart([value], NOTHING, CPU)
    assert (reason, True) == (caught.value.reason, caught.value.settled)


def joined(*outputs: object, stacked: frozenset[str] = NOTHING) -> Any:  # noqa: ANN401
    """The output for all items."""
    trees = [take_apart(output, NOTHING, CPU) for output in outputs]
    return made_again(join(trees, stacked), ())


def test_rows_follow_one_another_and_lists_grow() -> None:
    """A tensor is concatenated, a tuple or list of one gets one element for each item."""
    one, two = torch.zeros(1, 2), torch.ones(1, 2)
    assert same(torch.cat([one, two]), joined(one, two))
    assert same((one, two), joined((one,), (two,)))
    assert same([one, two], joined([one], [two]))
    both = joined(BaseModelOutput(one), BaseModelOutput(two))
    assert same(BaseModelOutput(torch.cat([one, two])), both)


def test_layers_are_joined_layer_by_layer() -> None:
    """Where a list has an element for each layer, items are joined within it."""
    one = BaseModelOutput(hidden_states=(torch.zeros(1, 2), (torch.ones(2),)))
    two = BaseModelOutput(hidden_states=(torch.ones(1, 2), (torch.zeros(2),)))
    expected = BaseModelOutput(
        hidden_states=(
            torch.cat([torch.zeros(1, 2), torch.ones(1, 2)]),
            (torch.ones(2), torch.zeros(2)),
        )
    )
    assert same(expected, joined(one, two, stacked=frozenset({"hidden_states"})))


PARTED: dict[str, tuple[object, object]] = {
    "kinds": (torch.zeros(1), (torch.zeros(1),)),
    "widths": (torch.zeros(1, 2), torch.zeros(1, 3)),
    "dtypes": (torch.zeros(1), torch.zeros(1, dtype=torch.int32)),
    "scalars": (torch.tensor(1), torch.tensor(2)),
    "classes": (BaseModelOutput(torch.zeros(1)), BaseModelOutputWithPooling(torch.zeros(1))),
    "fields": (
        BaseModelOutput(torch.zeros(1)),
        BaseModelOutput(torch.zeros(1), hidden_states=torch.zeros(1)),
    ),
    "counts": ((torch.zeros(1),), (torch.zeros(1), torch.zeros(1))),
    "two each": ((torch.zeros(1), torch.zeros(1)), (torch.zeros(1), torch.zeros(1))),
    "elements": (([torch.zeros(1)],), ([torch.zeros(1)],)),
    "values": ([3], [4]),
    "plain values": (3, 4),
}


@pytest.mark.parametrize(("one", "two"), PARTED.values(), ids=PARTED)
def test_outputs_that_do_not_fit_together_are_not_joined(one: object, two: object) -> None:
    """Better none than a guess."""
    with pytest.raises(UncacheableError):
        joined(one, two)


def test_layers_that_differ_in_number_are_not_joined() -> None:
    """Better none than a guess."""
    one = BaseModelOutput(hidden_states=(torch.zeros(1),))
    two = BaseModelOutput(hidden_states=(torch.zeros(1), torch.zeros(1)))
    with pytest.raises(UncacheableError):
        joined(one, two, stacked=frozenset({"hidden_states"}))
