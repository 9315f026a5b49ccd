"""Copies to and from a device are in order, whenever the device gets round to them."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.torch import TorchFramework
from eccache.adapters.torch.memory import bytes_of
from eccache.adapters.torch.transfer import CHUNK_NBYTES, CHUNKS, Ring
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.host_conformance import joined
from tests.unit.torch_host.lazy_device import LazyDevice, LazyQueue, Work

SIZES = [0, 1, CHUNK_NBYTES, CHUNK_NBYTES + 1, CHUNKS * CHUNK_NBYTES, 6 * CHUNK_NBYTES - 3]
GENEROUS = 1 << 30


def random_bytes(nbytes: int, seed: int = 0) -> torch.Tensor:
    """1-D uint8."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("nbytes", SIZES)
def test_an_uploaded_tensor_is_whole_for_what_the_caller_does_next(nbytes: int) -> None:
    """The host's bytes may change once the upload has returned, and the device be as late as it likes."""
    device = LazyDevice()
    source, target = random_bytes(nbytes), torch.zeros(nbytes, dtype=torch.uint8)
    expected = source.clone()
    seen: list[torch.Tensor] = []
    with device.copies.ring() as ring:
        ring.upload(source, target)
    source.fill_(1)
    device.caller.queue(lambda: seen.append(target.clone()))
    device.caller.here().synchronize()
    assert torch.equal(expected, seen[0])


def test_an_upload_comes_after_what_the_caller_has_queued_for_the_same_memory() -> None:
    """A device's allocator hands memory out before the device has finished with it."""
    device = LazyDevice()
    source = random_bytes(5 * CHUNK_NBYTES)
    target = torch.zeros_like(source)
    device.caller.queue(lambda: target.fill_(9))
    with device.copies.ring() as ring:
        ring.upload(source, target)
    device.caller.here().synchronize()
    assert torch.equal(source, target)


def test_uploads_one_after_another_do_not_take_each_others_chunks() -> None:
    """The next transfer begins while the device still reads the chunks of the last one."""
    device = LazyDevice()
    sources = [random_bytes(3 * CHUNK_NBYTES, seed) for seed in range(4)]
    targets = [torch.zeros_like(source) for source in sources]
    for source, target in zip(sources, targets, strict=True):
        with device.copies.ring() as ring:
            ring.upload(source, target)
    device.caller.here().synchronize()
    assert [True] * 4 == [torch.equal(*pair) for pair in zip(sources, targets, strict=True)]
    assert [CHUNKS * CHUNK_NBYTES] == device.pinned_nbytes


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_download_waits_for_the_device_and_each_piece_is_right(nbytes: int) -> None:
    """The bytes are those that the device had made by then, whenever it makes them."""
    device = LazyDevice()
    expected, source = random_bytes(nbytes), torch.zeros(nbytes, dtype=torch.uint8)
    ready = device.caller.queue(lambda: source.copy_(expected))
    with device.copies.ring() as ring:
        found = [piece.clone() for piece in ring.download(source, ready)]
    assert torch.equal(expected, torch.cat([torch.empty(0, dtype=torch.uint8), *found]))
    assert CHUNK_NBYTES >= max((piece.numel() for piece in found), default=0)


def test_the_next_pieces_are_on_their_way_while_one_is_read() -> None:
    """Reader and device work at the same time."""
    device = LazyDevice()
    queued: list[int] = []
    source = random_bytes(6 * CHUNK_NBYTES)
    with device.copies.ring() as ring:
        copy = ring._queue.copy  # noqa: SLF001
        ring._queue.copy = lambda *args: queued.append(1) or copy(*args)  # type: ignore[method-assign,func-returns-value]  # noqa: SLF001
        pieces = ring.download(source, device.caller.here())
        next(pieces)
        assert CHUNKS == len(queued)
        next(pieces)
        assert CHUNKS + 1 == len(queued)
        pieces.close()


def test_a_reader_that_stops_leaves_no_copy_under_way() -> None:
    """Its tensor may be freed, and the ring's next user fills chunks that nothing writes to any more."""
    queue = LazyQueue(Work())
    ring = Ring(queue, lambda nbytes: torch.empty(nbytes, dtype=torch.uint8))
    pieces = ring.download(random_bytes(6 * CHUNK_NBYTES), Work().here())
    next(pieces)
    assert CHUNKS - 1 == queue.copies.pending
    pieces.close()
    assert 0 == queue.copies.pending


def test_transfers_at_once_have_rings_of_their_own_and_those_are_reused() -> None:
    """Pinned memory is bounded by how many transfers ever ran at once."""
    device = LazyDevice()
    with device.copies.ring() as first, device.copies.ring() as second:
        assert first is not second
    with device.copies.ring() as first, device.copies.ring() as second:
        assert first is not second
    assert [CHUNKS * CHUNK_NBYTES] * 2 == device.pinned_nbytes


class TestFramework:
    """The adapter on a device that is late with everything; the CPU's tensors stand in for the device's."""

    @pytest.fixture
    def device(self) -> LazyDevice:
        """The device."""
        return LazyDevice()

    @pytest.fixture
    def host(self, device: LazyDevice) -> TorchFramework:
        """The adapter."""
        return TorchFramework(lambda _place: device.copies)

    @pytest.fixture
    def allocator(self) -> PooledAllocator:
        """A generous allocator that has no memory to give: a device's bytes need none."""

        def none(_nbytes: int) -> memoryview:
            raise AssertionError("no host memory is needed")

        return PooledAllocator(GENEROUS, none)

    @pytest.mark.parametrize("borrow", [False, True])
    def test_a_put_stores_what_the_device_will_have_made(
        self,
        device: LazyDevice,
        host: TorchFramework,
        allocator: PooledAllocator,
        borrow: bool,  # noqa: FBT001
    ) -> None:
        """`stage` waits for nothing; the bytes are waited for when they are asked for."""
        expected = torch.randn(700, 3584, dtype=torch.bfloat16)
        tensor = expected.clone() if not borrow else torch.zeros_like(expected)
        if borrow:
            device.caller.queue(lambda: tensor.copy_(expected))
        staged = host.stage(tensor, allocator, borrow=borrow)
        assert staged is not None
        assert borrow == torch.equal(torch.zeros_like(expected), tensor)
        if not borrow:
            tensor.zero_()
        assert bytes(bytes_of(expected)) == joined(staged)
        assert expected.nbytes == allocator.in_flight_nbytes
        staged.release()
        assert 0 == allocator.in_flight_nbytes

    def test_a_changed_tensor_is_seen_and_a_stored_one_let_go(
        self, host: TorchFramework, allocator: PooledAllocator
    ) -> None:
        """A borrowed tensor is watched while it is there, and not kept afterwards."""
        tensor = torch.ones(8)
        staged = host.stage(tensor, allocator, borrow=True)
        assert staged is not None
        assert staged.unchanged()
        tensor.zero_()
        assert not staged.unchanged()
        alive = weakref.ref(tensor)
        staged.release()
        del tensor
        gc.collect()
        assert alive() is None

    def test_views_are_stored_in_the_order_of_their_elements(
        self, host: TorchFramework, allocator: PooledAllocator
    ) -> None:
        """What is not contiguous is made so on the device."""
        tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).t()
        staged = host.stage(tensor, allocator, borrow=True)
        assert staged is not None
        assert bytes(bytes_of(tensor.contiguous())) == joined(staged)
        assert 48 == allocator.in_flight_nbytes

    def test_no_room_is_none(self, host: TorchFramework) -> None:
        """Pressure is the one reason for which nothing is staged."""
        allocator = PooledAllocator(100)
        taken = allocator.acquire(90, memory=False)  # given back when nobody has it any more
        assert taken is not None
        assert host.stage(torch.ones(8), allocator, borrow=True) is None

    @pytest.mark.parametrize("shape", [(), (0, 3), (5, 7), (1100, 3584)], ids=str)
    def test_a_built_tensor_is_a_copy_on_the_device(
        self, device: LazyDevice, host: TorchFramework, shape: tuple[int, ...]
    ) -> None:
        """It has the payload's bits once the caller uses it, whatever becomes of the payload."""
        expected = torch.randn(shape).to(torch.bfloat16)
        payload = memoryview(bytearray(bytes_of(expected)))
        built = host.build(TensorSpec("bfloat16", shape), payload, "cpu:0")
        payload[:] = bytes(payload.nbytes)
        device.caller.here().synchronize()
        assert torch.equal(expected, built)
