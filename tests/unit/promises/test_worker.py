"""The worker's side: promised copies become tensors, bit for bit, and tensors are put."""

from collections.abc import Callable

import pytest
import torch

from eccache.adapters.torch import TorchFramework
from eccache.app.promises.lookup import EntryLookup
from eccache.app.promises.promised_copy import PromisedCopy
from eccache.app.telemetry import LocalTelemetry
from eccache.app.worker import CacheWorker
from eccache.domain.entry_format import header_block
from eccache.domain.errors import ClosedError
from eccache.domain.frame import FreshFrame
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.lookup import PermittedSave, PromisedLoad, WorkerReport
from eccache.testing.clock import ManualClock
from eccache.testing.frames import ref_of
from tests.unit.promises.parts import ample_budget, job_of, memfd_copies, memory_store

TENSOR = torch.arange(24, dtype=torch.float32).reshape(6, 4)


class Working:
    """A worker, and the scheduler's copies that it loads."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.telemetry = LocalTelemetry(self.clock, "eccache.test")
        self.copies = memfd_copies()
        self.put: list[tuple[PermittedSave, torch.Tensor]] = []
        self.closed = 0
        self.worker = CacheWorker(
            copies=self.copies,
            host=TorchFramework(),
            put=self._put,
            close=self._close,
            clock=self.clock,
            telemetry=self.telemetry,
        )

    def promised(self, tensor: torch.Tensor = TENSOR) -> PromisedCopy:
        """Return a verified copy of *tensor*, as the scheduler's side makes it."""
        store, ref = memory_store(), ref_of("a")
        spec = TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        payload = memoryview(tensor.contiguous().view(torch.uint8).numpy().tobytes())
        store.put(ref, FreshFrame(ref, spec, payload, {}))
        lookup = EntryLookup(store, self.copies, ample_budget(), self.clock, self.telemetry)
        found = lookup(job_of(ref))
        assert isinstance(found, PromisedCopy)
        self.telemetry.take_report()
        return found

    def _put(self, permitted: PermittedSave, tensor: torch.Tensor) -> bool:
        self.put.append((permitted, tensor))
        return True

    def _close(self) -> None:
        self.closed += 1


def load_of(copy: PromisedCopy, mm_hash: str = "a", promise_id: int = 1) -> PromisedLoad:
    """Return the instruction to load *copy*."""
    return PromisedLoad(mm_hash, promise_id, copy.pid, copy.fd, copy.nbytes)


@pytest.fixture
def working() -> Working:
    """A worker with nothing to do."""
    return Working()


def counters(report: WorkerReport | None) -> dict[str, int]:
    """Return what a report counts."""
    assert report is not None
    return report.counters


def test_a_promised_copy_becomes_the_tensor_that_was_put(working: Working) -> None:
    """Bits, dtype and shape, on the device that was asked for."""
    copy = working.promised()
    tensors = working.worker.load([load_of(copy)], "cpu")
    assert ["a"] == list(tensors)
    assert torch.equal(TENSOR, tensors["a"])
    assert (torch.float32, "cpu") == (tensors["a"].dtype, tensors["a"].device.type)
    copy.close()


def test_a_tensor_outlives_the_copy_and_may_be_written(working: Working) -> None:
    """The scheduler closes the copy after the acknowledgement; the tensor stays, and is the worker's own."""
    copy = working.promised()
    mine = working.worker.load([load_of(copy)], "cpu")["a"]
    other = working.worker.load([load_of(copy)], "cpu")["a"]
    copy.close()
    mine.zero_()
    assert torch.equal(TENSOR, other)


def test_a_copy_is_not_hashed_again(working: Working) -> None:
    """It was verified after it was sealed; every rank would pay for a second pass over the bytes."""
    ref, spec = ref_of("a"), TensorSpec("float32", (6, 4))
    undigested = bytes(header_block(ref, spec, {})) + TENSOR.numpy().tobytes()
    copy = working.copies.create(len(undigested))
    copy.write(memoryview(undigested), 0)
    copy.seal()
    tensors = working.worker.load([PromisedLoad("a", 1, copy.pid, copy.fd, copy.nbytes)], "cpu")
    assert torch.equal(TENSOR, tensors["a"])
    copy.close()


def test_every_load_is_acknowledged_once(working: Working) -> None:
    """The report after a load carries its id, the next one does not."""
    copy = working.promised()
    working.worker.load([load_of(copy, "a", 7), load_of(copy, "b", 8)], "cpu")
    report = working.worker.take_report()
    assert report is not None
    assert {7: 1, 8: 1} == report.acks
    assert {"loads": 2, "bytes_loaded": 2 * copy.nbytes} == report.counters
    assert [0.0] == report.observations["load_seconds"]
    assert working.worker.take_report() is None
    copy.close()


def test_the_time_of_a_step_s_loads_is_observed(
    working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All loads of a step together, as the runner waits for them."""
    copy = working.promised()
    map_copy = working.copies.map

    def slow(pid: int, fd: int, nbytes: int) -> memoryview:
        working.clock.advance(0.25)
        return map_copy(pid, fd, nbytes)

    monkeypatch.setattr(working.copies, "map", slow)
    working.worker.load([load_of(copy, "a", 1), load_of(copy, "b", 2)], "cpu")
    report = working.worker.take_report()
    assert report is not None
    assert [0.5] == report.observations["load_seconds"]
    copy.close()


def test_a_copy_that_can_not_be_reached_is_left_out_counted_and_acknowledged(
    working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing raises; the others of the step are loaded."""
    gone, copy = working.promised(), working.promised()
    loads = [load_of(gone, "gone", 1), load_of(copy, "a", 2)]
    gone.close()
    assert ["a"] == list(working.worker.load(loads, "cpu"))
    report = working.worker.take_report()
    assert report is not None
    assert {1: 1, 2: 1} == report.acks
    assert 1 == report.counters["broken_promises"]
    assert 1 == report.counters["faults:load"]
    assert "worker.promise.broken mm_hash='gone'" in caplog.messages
    copy.close()


def test_a_device_that_refuses_is_a_broken_promise_and_raises_nothing(working: Working) -> None:
    """Out of memory on the accelerator ends in a counter."""
    copy = working.promised()
    assert {} == working.worker.load([load_of(copy)], "no such device")
    assert 1 == counters(working.worker.take_report())["broken_promises"]
    copy.close()


def test_a_saved_tensor_is_put_as_it_is(working: Working) -> None:
    """Nothing is copied on the way."""
    working.worker.save(PermittedSave("a"), TENSOR)
    ((permitted, tensor),) = working.put
    assert PermittedSave("a") == permitted
    assert tensor is TENSOR


def test_an_element_type_is_reported_when_it_is_first_made(working: Working) -> None:
    """What the encoder makes, not what it was configured for, is what a copy must be."""
    for tensor in (TENSOR, TENSOR, TENSOR.half()):
        working.worker.save(PermittedSave("a"), tensor)
    report = working.worker.take_report()
    assert report is not None
    assert {"float32", "float16"} == report.made
    working.worker.save(PermittedSave("b"), TENSOR)
    assert working.worker.take_report() is None


def _raise(*_: object) -> bool:
    raise ClosedError("the cache is closed")


@pytest.mark.parametrize(
    ("part", "use"),
    [
        ("_put", lambda worker: worker.save(PermittedSave("a"), TENSOR)),
        ("_close", lambda worker: worker.close()),
    ],
)
def test_a_fault_of_the_cache_never_reaches_the_runner(
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    use: Callable[[CacheWorker[torch.Tensor]], None],
) -> None:
    """A save or a close that fails is counted."""
    monkeypatch.setattr(working.worker, part, _raise)
    use(working.worker)
    assert {f"faults:{part[1:].replace('put', 'save')}": 1} == counters(
        working.worker.take_report()
    )


def test_what_the_engine_counted_travels_with_the_report(working: Working) -> None:
    """Also in a step without a load."""
    working.telemetry.count("stored", 3)
    assert WorkerReport(counters={"stored": 3}) == working.worker.take_report()


def test_closing_closes_the_engine(working: Working) -> None:
    """Accepted saves are waited for there."""
    working.worker.close()
    assert 1 == working.closed
