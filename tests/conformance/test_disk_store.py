"""The native store does what an entry store does, wherever its files are."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eccache.adapters.disk import DiskPolicy, DiskStore
from eccache.adapters.system.clock import SystemClock
from eccache.adapters.system.files import SystemFiles
from eccache.testing.store_conformance import SharedStoreConformance
from eccache.testing.telemetry import RecordingTelemetry


class TestDiskStore(SharedStoreConformance):
    """Conformance on the file system of the test's folder."""

    def make_store(self, place: Path, capacity_nbytes: int) -> DiskStore:
        """Return a store in a folder."""
        return DiskStore(
            str(place / "root"),
            policy=DiskPolicy(capacity_nbytes=capacity_nbytes, free_space_ratio=0),
            files=SystemFiles(),
            clock=SystemClock(),
            telemetry=RecordingTelemetry(),
        )


class TestDiskStoreOnTmpfs(TestDiskStore):
    """Conformance in shared memory."""

    @pytest.fixture
    def tmp_path(self) -> Iterator[Path]:
        """Return a folder on tmpfs."""
        path = tempfile.mkdtemp(prefix="eccache-test-", dir="/dev/shm")
        yield Path(path)
        shutil.rmtree(path)
