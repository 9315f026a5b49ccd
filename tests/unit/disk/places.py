"""Where the tests of the native store put it: a simulated disk or a real folder."""

from __future__ import annotations

import contextlib
import random
import stat
from pathlib import Path
from typing import Any

import attrs

from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.parts import DiskParts
from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.domain.entry_format import FrameError, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations
from eccache.ports.storage import EntryStore
from eccache.testing.clock import ManualClock
from eccache.testing.frames import frame_of
from eccache.testing.simulated_disk import SimulatedDisk
from eccache.testing.simulated_process import SimulatedProcess
from eccache.testing.telemetry import RecordingTelemetry

ROOT = "/cache"
LAYOUT = Layout(ROOT)
AMPLE_NBYTES = 64 << 20
ENTRY_NBYTES = 8192
"""Physical bytes of an entry of `frame_of` with its default shape."""


def policy_of(capacity_nbytes: int = AMPLE_NBYTES, **options: Any) -> DiskPolicy:  # noqa: ANN401
    """Return a policy without a floor of free space, unless *options* say otherwise."""
    return DiskPolicy(**{"capacity_nbytes": capacity_nbytes, "free_space_ratio": 0.0, **options})


@attrs.define
class SimulatedPlace:
    """A root on a simulated disk.

    Attributes:
        policy: of every store that is opened.
        clock: stands still.
        disk: shared by all processes.
        telemetry: what all stores said.
    """

    policy: DiskPolicy = attrs.field(factory=policy_of)
    clock: ManualClock = attrs.field(factory=ManualClock)
    disk: SimulatedDisk = attrs.field()
    telemetry: RecordingTelemetry = attrs.field(factory=RecordingTelemetry)

    @disk.default
    def _disk(self) -> SimulatedDisk:
        return SimulatedDisk(self.clock)

    def process(self) -> SimulatedProcess:
        """Start a process."""
        return SimulatedProcess(self.disk)

    def store(self, files: FileOperations | None = None, **options: Any) -> DiskStore:  # noqa: ANN401
        """Open the root, in a process of its own unless *files* says in which."""
        return DiskStore(ROOT, **self._arguments(files), **options)

    def parts(self, files: FileOperations | None = None) -> DiskParts:
        """Return the parts of the root."""
        return DiskParts.assemble(ROOT, **self._arguments(files))

    def _arguments(self, files: FileOperations | None) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "files": files or self.process(),
            "clock": self.clock,
            "telemetry": self.telemetry,
        }

    def nbytes_in(self, directory: str = LAYOUT.version) -> int:
        """Return the physical bytes of all files in a directory and below, but not of the table."""
        try:
            waiting = [self.disk.find(directory)]
        except OSError:
            return 0
        nbytes = 0
        while waiting:
            node = waiting.pop()
            nbytes += node.reserved_nbytes if stat.S_ISREG(node.mode) else 0
            waiting += [child for name, child in node.names.items() if name != "usage"]
        return nbytes

    def unfinished(self) -> list[str]:
        """Return the names of all unfinished files."""
        try:
            return list(self.disk.find(LAYOUT.temporary).names)
        except OSError:
            return []


def disk_store(
    root: Path | str,
    *,
    policy: DiskPolicy | None = None,
    clock: Clock | None = None,
    files: FileOperations | None = None,
    telemetry: RecordingTelemetry | None = None,
    **options: Any,  # noqa: ANN401
) -> DiskStore:
    """Open a store in a real folder."""
    return DiskStore(
        str(root),
        policy=policy or policy_of(),
        files=files or SystemFiles(),
        clock=clock or SystemClock(),
        telemetry=telemetry or RecordingTelemetry(),
        rng=random.Random(0),
        **options,
    )


def put(store: EntryStore, ref: EntryRef, seed: int = 0, rows: int = 4) -> PutOutcome:
    """Put a small frame."""
    return store.put(ref, frame_of(ref, seed, rows=rows))


def read(store: EntryStore, ref: EntryRef) -> bytes | None:
    """Read as the engine does: verified, and what is damaged goes into quarantine."""
    lease = store.get(ref)
    if lease is None:
        return None
    with contextlib.closing(lease):
        view = lease.view()
    try:
        open_verified(view, ref)
    except FrameError as error:
        if error.fault.is_damage:
            store.remove(ref, RemoveReason.QUARANTINED)
        return None
    return bytes(view)
