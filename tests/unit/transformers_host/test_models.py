"""What a cached encoder returns is what the model would, on each architecture that is divided into items."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from eccache.app.engine import ECCacheEngine
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host.models import HOSTS, Host, made

CountRuns = Callable[[torch.nn.Module, str], list[int]]
Cache = ECCacheEngine[torch.Tensor]

every_host = pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)


def equal(expected: list[torch.Tensor], found: list[torch.Tensor]) -> bool:
    """Whether two lists of tensors are equal bit for bit."""
    return len(expected) == len(found) and all(
        one.dtype == other.dtype and torch.equal(one, other)
        for one, other in zip(expected, found, strict=True)
    )


@every_host
def test_an_item_comes_back_bit_for_bit_without_an_encoder_run(
    host: Host, cache: Cache, count_runs: CountRuns
) -> None:
    """A hit is the model's own output, and the encoder does not run for it."""
    model = made(host.make)
    inputs = host.items(1)
    stock = host.encode(model, **inputs)
    runs = count_runs(model, host.tower)
    for _ in range(2):
        with cached_encoder(model, cache) as encoder:
            found = host.encode(model, **inputs)
        assert equal(host.value(stock), host.value(found))
        assert isinstance(found, type(stock))
        assert 1 == runs[0]
        cache.flush()
    assert (1, 0) == (encoder.stats().hits, encoder.stats().misses)


@every_host
def test_items_of_a_call_are_entries_of_their_own(
    host: Host, cache: Cache, count_runs: CountRuns
) -> None:
    """Whatever company an item comes in, it is encoded once, alone, and equals the item alone."""
    model = made(host.make)
    both = host.items(2)
    batch = host.value(host.encode(model, **both))
    singles = alone(host, both)
    expected = [host.value(host.encode(model, **single)) for single in singles]
    runs = count_runs(model, host.tower)
    with cached_encoder(model, cache) as encoder:
        found = host.encode(model, **both)
        assert 2 == runs[0]
        cache.flush()
        for single, value in zip(singles, expected, strict=True):
            assert equal(value, host.value(host.encode(model, **single)))
        again = host.encode(model, **both)
    assert 2 == runs[0]
    assert (4, 2, {}) == (encoder.stats().hits, encoder.stats().misses, encoder.stats().bypassed)
    interleaved = [one for pair in zip(*expected, strict=True) for one in pair]
    assert equal(interleaved, host.value(found))
    assert equal(interleaved, host.value(again))
    # What the model makes of the batch differs in the last bits at the most.
    torch.testing.assert_close(batch, host.value(found))


def alone(host: Host, both: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """The inputs of two items, each by itself."""
    grid = next((tensor for name, tensor in both.items() if name.endswith("_grid_thw")), None)
    lengths = [1, 1] if grid is None else [int(length) for length in grid.prod(-1)]
    parts = {
        name: tensor.split([1, 1] if name.endswith("_grid_thw") else lengths)
        for name, tensor in both.items()
    }
    return [{name: pieces[place] for name, pieces in parts.items()} for place in range(2)]


@every_host
def test_the_form_of_an_output_does_not_depend_on_where_it_came_from(
    host: Host, cache: Cache
) -> None:
    """Computed or served, one or several: the same fields in the same containers as the model's."""
    model = made(host.make)
    for count in (1, 2):
        inputs = host.items(count)
        stock = host.encode(model, **inputs)
        with cached_encoder(model, cache):
            computed = host.encode(model, **inputs)
            cache.flush()
            served = host.encode(model, **inputs)
        for output in (computed, served):
            assert output.keys() <= stock.keys()
            for name, value in output.items():
                assert form(stock[name]) == form(value)


def form(value: object) -> object:
    """Containers, shapes and dtypes of a value."""
    if isinstance(value, (list, tuple)):
        return (type(value), [form(one) for one in value])
    assert isinstance(value, torch.Tensor)
    return (value.dtype, value.shape, value.device)


def test_an_item_twice_in_a_call_is_encoded_once(cache: Cache, count_runs: CountRuns) -> None:
    """Equal content is one item, also before it has been stored."""
    host = HOSTS["clip"]
    model = made(host.make)
    runs = count_runs(model, host.tower)
    pixels = host.items(1)["pixel_values"].repeat(3, 1, 1, 1)
    with cached_encoder(model, cache) as encoder:
        found = host.encode(model, pixel_values=pixels)
    assert 1 == runs[0]
    assert (2, 1) == (encoder.stats().hits, encoder.stats().misses)
    assert 3 == len(found.pooler_output)


def test_a_half_known_call_runs_the_encoder_for_the_rest_alone(
    cache: Cache, count_runs: CountRuns
) -> None:
    """The order of items in a call is kept, whichever of them are served."""
    host = HOSTS["qwen2_5_vl"]
    model = made(host.make)
    both = host.items(2)
    first, second = alone(host, both)
    expected = [*host.value(host.encode(model, **first)), *host.value(host.encode(model, **second))]
    with cached_encoder(model, cache):
        host.encode(model, **second)
        cache.flush()
        runs = count_runs(model, host.tower)
        found = host.encode(model, **both)
    assert 1 == runs[0]
    assert equal(expected, host.value(found))


@pytest.mark.parametrize("name", ["qwen2_5_vl", "clip"])
def test_whole_calls_equal_the_models_own_bit_for_bit(name: str, cache: Cache) -> None:
    """With per_item=False the same batch comes back as the model computed it, as one entry."""
    host = HOSTS[name]
    model = made(host.make)
    inputs = host.items(3)
    stock = host.value(host.encode(model, **inputs))
    with cached_encoder(model, cache, per_item=False) as encoder:
        host.encode(model, **inputs)
        cache.flush()
        assert equal(stock, host.value(host.encode(model, **inputs)))
    assert (1, 1) == (encoder.stats().hits, encoder.stats().misses)


def test_the_models_own_error_reaches_the_caller(cache: Cache) -> None:
    """What the model refuses is refused as if there were no cache, and nothing is stored."""
    host = HOSTS["clip"]
    model = made(host.make)
    wrong = torch.randn(1, 3, 8, 8)
    with pytest.raises(ValueError) as stock:  # noqa: PT011 - compared below
        host.encode(model, pixel_values=wrong)
    with cached_encoder(model, cache) as encoder:
        with pytest.raises(ValueError) as found:  # noqa: PT011 - compared below
            host.encode(model, pixel_values=wrong)
        cache.flush()
        assert str(stock.value) == str(found.value)
        assert 0 == cache.stats().entries
        host.encode(model, **host.items(1))  # and the next call is not taken for a part of that one
    assert 1 == encoder.stats().misses
