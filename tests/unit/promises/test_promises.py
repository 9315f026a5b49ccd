"""The whole scheduler's side and the worker's, over the native store, real threads and real memory."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import torch

from eccache.adapters.system.clock import SystemClock
from eccache.adapters.torch import TorchFramework
from eccache.app.promises.assembly import PromiseParts, open_promises
from eccache.app.promises.ledger import PromiseLedger
from eccache.app.promises.limits import LedgerLimits
from eccache.app.telemetry import LocalTelemetry
from eccache.app.worker import CacheWorker
from eccache.domain.frame import FreshFrame
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.lookup import Item, StepPlan
from eccache.ports.storage import EntryStore
from eccache.testing.frames import ref_of
from tests.unit.promises.parts import (
    SHORT,
    GatedStore,
    held_copies,
    lookup_threads,
    memfd_copies,
    until,
)
from tests.unit.promises.test_lookup import DAMAGES, disk_store

INPUTS = 12
ROWS = 40


class Server:
    """A scheduler and one worker in this process, as the connector puts them together."""

    def __init__(self, store: EntryStore, **limits: float) -> None:
        self.clock = SystemClock()
        self.telemetry = LocalTelemetry(self.clock, "eccache.test")
        copies = memfd_copies()
        self.scheduler: PromiseLedger = open_promises(
            PromiseParts(
                store=store,
                copies=copies,
                ref_of=lambda item: ref_of(item.mm_hash, variant=item.variant),
                probe=store.contains,
                clock=self.clock,
                telemetry=self.telemetry,
            ),
            limits=attrs.evolve(LedgerLimits(), **limits),  # type: ignore[arg-type]
            ranks=1,
            threads=2,
        )
        self.worker = CacheWorker(
            copies=copies,
            host=TorchFramework(),
            put=lambda *_: True,
            close=lambda: None,
            clock=self.clock,
            telemetry=LocalTelemetry(self.clock, "eccache.test"),
        )

    def ensured(self, request_id: str, items: list[Item]) -> bool:
        """Ask in one step; a request that has to wait has no part in it."""
        answer = self.scheduler.ensure(request_id, items)
        if not answer:
            assert StepPlan() == self.scheduler.take_step()
        return answer

    def serve(self, request_id: str, items: list[Item]) -> dict[str, torch.Tensor]:
        """Take a request through; what is not in the answer is encoded."""
        until(lambda: self.ensured(request_id, items) or None)
        promised = {item.mm_hash for item in items if self.scheduler.is_promised(item.mm_hash)}
        for item in items:
            self.scheduler.allocated(request_id, item, storable=True)
        plan = self.scheduler.take_step()
        loaded = self.worker.load(plan.loads, "cpu")
        assert promised == set(loaded), "a broken promise"
        report = self.worker.take_report()
        if report is not None:
            self.scheduler.report(report)
        return loaded


def stored(number: int) -> torch.Tensor:
    """Return the encoder output of an input: nothing like any other's."""
    return torch.full((ROWS, 256), number, dtype=torch.float32)


def put(store: EntryStore, number: int) -> None:
    """Store an input's encoder output."""
    payload = memoryview(stored(number).numpy().tobytes())
    ref = ref_of(f"input {number}")
    store.put(ref, FreshFrame(ref, TensorSpec("float32", (ROWS, 256)), payload, {}))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No memory file and no thread stays behind."""
    yield
    until(lambda: not lookup_threads(closer=True) or None)
    assert 0 == held_copies()


def test_every_promise_is_kept_while_entries_are_damaged_in_place(tmp_path: Path) -> None:
    """Deleted, truncated, flipped under a running server: right rows or an encoder run, nothing else."""
    store = disk_store(tmp_path)
    server = Server(store)
    rng = random.Random(7)
    over = threading.Event()

    def ruin() -> None:
        rng = random.Random(8)
        while not over.is_set():
            for path in list(tmp_path.rglob("*.safetensors")):
                try:
                    rng.choice(list(DAMAGES.values()))(path)
                except OSError:
                    continue
                if over.wait(0.0005):
                    return

    vandal = threading.Thread(target=ruin)
    vandal.start()
    loads = 0
    for round_number in range(200):
        numbers = rng.sample(range(INPUTS), 2)
        for number in numbers:
            put(store, number)
        items = [Item(f"input {number}", ROWS) for number in numbers]
        loaded = server.serve(f"request {round_number}", items)
        server.scheduler.finished(f"request {round_number}")
        loads += len(loaded)
        for name, tensor in loaded.items():
            assert torch.equal(stored(int(name.split()[1])), tensor)
    over.set()
    vandal.join()
    server.scheduler.close()
    damaged = sum(server.telemetry.total(name) for name in ("misses", "corrupt", "errors"))
    assert loads >= 60
    assert damaged >= 1


def test_aborts_at_any_moment_leave_nothing(tmp_path: Path) -> None:
    """Requests that end while they wait, when they are ready, and in the step of their load."""
    store = disk_store(tmp_path)
    for number in range(INPUTS):
        put(store, number)
    server = Server(store)
    rng = random.Random(9)
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names
    for number in range(300):
        request_id = f"request {number}"
        items = [Item(f"input {name}", ROWS) for name in rng.sample(range(INPUTS), 3)]
        for _ in range(rng.randrange(4)):
            server.ensured(request_id, items)
        if rng.random() < 0.2:
            server.serve(request_id, items)
        server.scheduler.finished(request_id)
    until(lambda: 0 == held_copies() or None)
    assert descriptors == len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names
    server.scheduler.close()


def test_a_hung_store_costs_a_request_its_time_limit_and_nothing_else(tmp_path: Path) -> None:
    """Reads that never return: an encoder run in time, and a shutdown that does not wait."""
    store = GatedStore(disk_store(tmp_path))
    put(store, 1)
    server = Server(store, lookup_timeout_seconds=0.05)
    items = [Item("input 1", ROWS)]
    assert {} == server.serve("hung", items)
    assert 1 == server.telemetry.total("timeouts")
    server.scheduler.finished("hung")
    server.scheduler.close()
    assert store.entered.acquire(timeout=SHORT)
    store.gate.set()
