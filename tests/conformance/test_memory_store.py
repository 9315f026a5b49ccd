"""The in-memory reference store does what an entry store does."""

from pathlib import Path

from eccache.adapters.memory import MemoryStore
from eccache.testing.clock import ManualClock
from eccache.testing.store_conformance import CappedStoreConformance, EntryStoreConformance


class TestMemoryStore(EntryStoreConformance, CappedStoreConformance):
    """Conformance of the reference."""

    def make_store(self, place: Path, capacity_nbytes: int) -> MemoryStore:
        """Return an empty store."""
        return MemoryStore(capacity_nbytes=capacity_nbytes, clock=ManualClock())
