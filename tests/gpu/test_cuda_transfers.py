"""Copies to and from a real CUDA device: the same bits, in order, and nobody waits who need not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import eccache

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

SHAPES = [(), (0, 3584), (70, 3584), (4802, 3584), (18252, 3584)]
LARGEST = (18252, 3584)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[eccache.ECCacheEngine[torch.Tensor]]:
    """A cache on disk."""
    config = eccache.CacheConfig(local_disk=str(tmp_path / "ec"))
    with eccache.open_cache(config, model="gpu", encoder_dtype="bfloat16") as cache:
        yield cache


def random_on_device(shape: tuple[int, ...]) -> torch.Tensor:
    """A bfloat16 tensor, made by the device."""
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


@pytest.mark.parametrize("borrow", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_size_comes_back_with_the_same_bits(
    cache: eccache.ECCacheEngine[torch.Tensor],
    shape: tuple[int, ...],
    borrow: bool,  # noqa: FBT001
) -> None:
    """From the device to a file and back, through several turns of the ring."""
    tensor = random_on_device(shape)
    assert cache.put("id", tensor, borrow=borrow)
    assert cache.flush()
    for device in ("cuda:0", "cpu"):
        found = cache.get("id", device)
        assert found is not None
        assert device == str(found.device) if device != "cpu" else found.device.type == "cpu"
        assert torch.equal(tensor.cpu(), found.cpu())


def test_a_copied_put_does_not_see_what_the_caller_queues_next(
    cache: eccache.ECCacheEngine[torch.Tensor],
) -> None:
    """With borrow=False the tensor may be overwritten at once, also by work that is only queued."""
    tensor = random_on_device(LARGEST)
    expected = tensor.cpu()
    assert cache.put("id", tensor)
    tensor.zero_()
    assert cache.flush()
    found = cache.get("id")
    assert found is not None
    assert torch.equal(expected, found)


def test_a_put_waits_for_work_that_is_only_queued(
    cache: eccache.ECCacheEngine[torch.Tensor],
) -> None:
    """What is stored is what the device will have made, and the caller does not wait for it."""
    tensor = torch.zeros(LARGEST, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second of the device's time  # noqa: SLF001
    tensor.fill_(3)
    begin = time.perf_counter()
    assert cache.put("id", tensor, borrow=True)
    assert 0.2 > time.perf_counter() - begin
    assert cache.flush()
    found = cache.get("id")
    assert found is not None
    assert torch.equal(torch.full(LARGEST, 3, dtype=torch.bfloat16), found)


def test_a_loaded_tensor_is_complete_for_what_is_queued_next(
    cache: eccache.ECCacheEngine[torch.Tensor],
) -> None:
    """In the stream that is current, whichever it is; memory that was in use is not overwritten too soon."""
    tensor = random_on_device(LARGEST)
    assert cache.put("id", tensor)
    assert cache.flush()
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(20):
                scratch = torch.full(LARGEST, 7, device="cuda", dtype=torch.bfloat16)
                torch.cuda._sleep(10_000_000)  # noqa: SLF001
                total = scratch.sum(dtype=torch.float64)
                del scratch  # the allocator may hand its memory to the load
                found = cache.get("id", "cuda:0")
                assert found is not None
                equal = (found == tensor).all()
                stream.synchronize()
                assert equal.item()
                assert 7.0 * LARGEST[0] * LARGEST[1] == total.item()


def test_pinned_memory_is_bounded_by_the_transfers_at_once(
    cache: eccache.ECCacheEngine[torch.Tensor],
) -> None:
    """Many large tensors need no more of it than a few."""
    for number in range(20):
        assert cache.put(str(number), random_on_device((4802, 3584)), borrow=True)
    assert cache.flush()
    device = cache._parts.host._device(torch.device("cuda:0"))  # type: ignore[attr-defined]  # noqa: SLF001
    assert 3 >= len(device._idle)  # noqa: SLF001
