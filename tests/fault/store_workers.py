"""What the processes do that the tests of the native store start and kill."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import attrs

from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.disk.parts import DiskParts
from eccache.adapters.disk.upkeep import DiskMaintenance
from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.domain.entry_format import open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import FreshFrame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.file_operations import FileOperations
from eccache.ports.maintenance import Subset
from eccache.testing.file_faults import featureless
from eccache.testing.frames import ref_of
from eccache.testing.telemetry import RecordingTelemetry

WIDTH_NBYTES = 1024
MAX_ENTRY_NBYTES = (1 << 20) + 4096
_CONTENT = random.Random(0).randbytes(2 << 20)
_PADDING = " " * 800
"""Makes a pipe of a page hold a few reports only, so that a writer is not far ahead of what is heard."""


@attrs.frozen
class Place:
    """A root, as every process opens it.

    Attributes:
        root: its path.
        capacity_nbytes: its cap.
        has_locks: False: a lock is granted to everybody.
    """

    root: str
    capacity_nbytes: int
    has_locks: bool = True

    def files(self) -> FileOperations:
        """Return the file operations of a process."""
        return SystemFiles() if self.has_locks else featureless(SystemFiles())

    def policy(self) -> DiskPolicy:
        """Return the policy."""
        return DiskPolicy(capacity_nbytes=self.capacity_nbytes, free_space_ratio=0.0)

    def store(self) -> DiskStore:
        """Open the root."""
        return DiskStore(
            self.root,
            policy=self.policy(),
            files=self.files(),
            clock=SystemClock(),
            telemetry=RecordingTelemetry(),
        )

    def maintenance(self) -> DiskMaintenance:
        """Return what an operator's commands use."""
        parts = DiskParts.assemble(
            self.root,
            policy=self.policy(),
            files=self.files(),
            clock=SystemClock(),
            telemetry=RecordingTelemetry(),
        )
        return DiskMaintenance(parts, keeps_cap=True)

    def unfinished(self) -> list[str]:
        """Return the names of unfinished files."""
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(f"{self.root}/v1/unfinished")  # noqa: PTH208
        return []

    def physical_nbytes(self) -> int:
        """Return the physical bytes of all that the cap bounds, by looking at every file."""
        nbytes = 0
        for directory, _, names in os.walk(f"{self.root}/v1"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    path = Path(directory) / name
                    nbytes += 0 if name == "usage" else path.lstat().st_blocks * 512
        return nbytes


def payload_of(name: str) -> bytes:
    """Return the payload of an input: its length and its bytes follow from its name."""
    rng = random.Random(name)
    rows = int(2 ** rng.uniform(0, 10))
    start = rng.randrange(1 << 19)
    return _CONTENT[start : start + rows * WIDTH_NBYTES]


def frame_of(name: str) -> FreshFrame:
    """Return the frame of an input: 5 KiB to 1 MiB."""
    payload = payload_of(name)
    spec = TensorSpec("uint8", (len(payload) // WIDTH_NBYTES, WIDTH_NBYTES))
    return FreshFrame(ref_of(name), spec, memoryview(payload), {})


def read(store: DiskStore, name: str) -> bool:
    """Read and verify an input's entry, bit by bit; False on a miss.

    Raises:
        AssertionError: it is not what was put.
        FrameError: it is damaged.
    """
    ref: EntryRef = ref_of(name)
    lease = store.get(ref)
    if lease is None:
        return False
    with contextlib.closing(lease):
        view = lease.view()
    header = open_verified(view, ref)
    assert payload_of(name) == bytes(view[header.block_nbytes :])
    return True


def report_failure(work: Callable[[], None], reports: Connection) -> None:
    """Do *work* and send what it raises."""
    try:
        work()
    except BaseException as failure:  # noqa: BLE001 - reported by the test's own process
        reports.send(("failed", f"{type(failure).__name__}: {failure}", ""))


def write_for_ever(place: Place, seed: int, reports: Connection) -> None:
    """Put and read random entries until killed; say what is begun and what is stored."""

    def work() -> None:
        rng = random.Random(seed)
        store = place.store()
        known: list[str] = []
        turn = 0
        while True:
            turn += 1
            name = f"{seed}/{turn}"
            reports.send(("begun", name, _PADDING))
            assert store.put(ref_of(name), frame_of(name)) is PutOutcome.STORED
            reports.send(("stored", name, _PADDING))
            known.append(name)
            assert read(store, rng.choice(known)) or place.capacity_nbytes < 1 << 32
            shared = f"shared {rng.randrange(5)}"
            store.put(ref_of(shared), frame_of(shared))
            read(store, shared)
            if rng.random() < 0.3:
                store.remove(ref_of(shared), rng.choice(list(RemoveReason)))

    report_failure(work, reports)


def do_everything(place: Place, seed: int, turns: int, reports: Connection) -> None:
    """Put, read, remove, verify and collect; say how many reads were hits."""

    def work() -> None:
        os.getpid = lambda: 1  # As in containers, where every process is number one.
        rng = random.Random(seed)
        store = place.store()
        maintenance = place.maintenance()
        hits = 0
        for turn in range(turns):
            name = f"input {rng.randrange(200)}"
            outcome = store.put(ref_of(name), frame_of(name))
            assert outcome is not PutOutcome.REJECTED
            for _ in range(3):
                hits += read(store, f"input {rng.randrange(200)}")
            if rng.random() < 0.1:
                store.remove(ref_of(name), rng.choice(list(RemoveReason)))
            if turn % 20 == seed:
                maintenance.collect(progress=lambda *_: None)
            if turn % 20 == seed + 10:
                report = maintenance.verify(Subset(1, 4), repair=True, progress=lambda *_: None)
                assert () == report.problems, report.problems
        reports.send(("hits", hits, ""))

    report_failure(work, reports)
