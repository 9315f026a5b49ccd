"""The native store against a model, on a disk that loses what was not synced.

Two processes share one root. At any operation one of them may die, or the power may fail. The model knows
what must be there (`certain`) and what may be there (every frame that was ever put under the name).
"""

import random
import stat

import hypothesis.strategies as st
from hypothesis import assume
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eccache.adapters.disk import DiskPolicy, DiskStore, Durability
from eccache.adapters.disk.layout import Layout
from eccache.adapters.disk.parts import DiskParts
from eccache.domain.entry_format import FrameError, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.testing.clock import ManualClock
from eccache.testing.frames import frame_bytes, frame_of, ref_of
from eccache.testing.simulated_disk import SimulatedDisk
from eccache.testing.simulated_process import ProcessDied, SimulatedProcess
from eccache.testing.telemetry import RecordingTelemetry

ROOT = "/cache"
LAYOUT = Layout(ROOT)
REFS = [ref_of(f"input {number}") for number in range(5)]
ENTRY_NBYTES = 8192
refs = st.sampled_from(REFS)
processes = st.integers(0, 1)
rows = st.integers(1, 3)
steps = st.integers(0, 60)


class DiskMachine(RuleBasedStateMachine):
    """Everything that can happen to a store that is large enough never to evict."""

    capacity_nbytes = 1 << 30
    durability = Durability.PROCESS

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        """Open an empty root twice."""
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.clock)
        self.certain: dict[EntryRef, bytes] = {}
        self.possible: dict[EntryRef, set[bytes]] = {ref: set() for ref in REFS}
        self.files = [SimulatedProcess(self.disk) for _ in range(2)]
        self.stores = [self.opened(files) for files in self.files]
        self.died = False

    def opened(self, files: SimulatedProcess) -> DiskStore:
        """Open the root in one process."""
        return DiskStore(ROOT, **self.arguments(files), rng=self.rng)  # type: ignore[arg-type]

    def arguments(self, files: SimulatedProcess) -> dict[str, object]:
        """What the store of one process is made with."""
        policy = DiskPolicy(capacity_nbytes=self.capacity_nbytes, durability=self.durability)
        return {
            "policy": policy,
            "files": files,
            "clock": self.clock,
            "telemetry": RecordingTelemetry(),
        }

    @rule(process=processes, ref=refs, rows=rows)
    def put(self, process: int, ref: EntryRef, rows: int) -> None:
        """What is put is there afterwards, unless the store says no."""
        frame = frame_of(ref, rows, rows=rows)
        self.possible[ref].add(frame_bytes(frame))
        outcome = self.stores[process].put(ref, frame)
        assert PutOutcome.REJECTED is not outcome
        if outcome is PutOutcome.ALREADY_PRESENT:
            assert self.certain.get(ref, frame_bytes(frame)) == frame_bytes(frame)
        self.certain[ref] = frame_bytes(frame)

    @rule(process=processes, ref=refs)
    def get(self, process: int, ref: EntryRef) -> None:
        """What is read is what was put, or nothing; what must be there is."""
        assert self.certain.get(ref) in (None, self.read(process, ref))

    def read(self, process: int, ref: EntryRef) -> bytes | None:
        """Read as the engine does: verified, and what is damaged goes into quarantine."""
        lease = self.stores[process].get(ref)
        if lease is None:
            return None
        view = lease.view()
        lease.close()
        try:
            open_verified(view, ref)
        except FrameError:
            self.stores[process].remove(ref, RemoveReason.QUARANTINED)
            return None
        assert bytes(view) in self.possible[ref]
        return bytes(view)

    @rule(process=processes, ref=refs)
    def contains(self, process: int, ref: EntryRef) -> None:
        """What must be there is contained."""
        assert self.stores[process].contains(ref) or ref not in self.certain

    @rule(process=processes, ref=refs, reason=st.sampled_from(RemoveReason))
    def remove(self, process: int, ref: EntryRef, reason: RemoveReason) -> None:
        """What is removed is gone."""
        self.certain.pop(ref, None)
        self.stores[process].remove(ref, reason)
        assert not self.stores[process].contains(ref)

    @rule(ref=refs, offset=st.integers(0, ENTRY_NBYTES), bit=st.integers(0, 7))
    def flip(self, ref: EntryRef, offset: int, bit: int) -> None:
        """A bit of an entry's file changes in place."""
        try:
            node = self.disk.find(LAYOUT.entry(ref))
        except OSError:
            return
        if node.data:
            node.data[offset % len(node.data)] ^= 1 << bit
            self.certain.pop(ref, None)

    @rule(ref=refs, nbytes=st.integers(0, ENTRY_NBYTES))
    def truncate(self, ref: EntryRef, nbytes: int) -> None:
        """An entry's file becomes shorter."""
        try:
            node = self.disk.find(LAYOUT.entry(ref))
        except OSError:
            return
        if nbytes < len(node.data):
            del node.data[nbytes:]
            self.certain.pop(ref, None)

    @rule(process=processes, ref=refs, rows=rows, steps=steps)
    def die_while_putting(self, process: int, ref: EntryRef, rows: int, steps: int) -> None:
        """A process dies at some operation of a put; what was there, or what was put, is there."""
        before = self.certain.pop(ref, None)
        frame = frame_of(ref, rows, rows=rows)
        self.possible[ref].add(frame_bytes(frame))
        self.files[process].steps_left = steps
        try:
            self.stores[process].put(ref, frame)
        except ProcessDied:
            self.died = True
        self.reopen(process)
        found = self.read(process, ref)
        if before is not None:
            assert found in (before, frame_bytes(frame))

    @rule(process=processes, ref=refs, reason=st.sampled_from(RemoveReason), steps=steps)
    def die_while_removing(
        self, process: int, ref: EntryRef, reason: RemoveReason, steps: int
    ) -> None:
        """A process dies at some operation of a removal."""
        self.certain.pop(ref, None)
        self.files[process].steps_left = steps
        try:
            self.stores[process].remove(ref, reason)
        except ProcessDied:
            self.died = True
        self.reopen(process)

    def reopen(self, process: int) -> None:
        """Start a process anew."""
        self.files[process].die()
        self.files[process] = SimulatedProcess(self.disk)
        self.stores[process] = self.opened(self.files[process])

    @rule()
    def cut_power(self) -> None:
        """All processes die, and what was not synced is lost in part."""
        for files in self.files:
            files.die()
        self.disk.cut_power(self.rng)
        self.died = True
        if self.durability is Durability.PROCESS:
            self.certain.clear()
        for process in range(2):
            self.reopen(process)

    @rule(seconds=st.floats(0, 100_000))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    @rule(seconds=st.floats(-1e6, 1e6))
    def set_clock(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.clock.jump(seconds)

    @precondition(lambda self: self.died)
    @rule()
    def collect(self) -> None:
        """What dead writers left is collected at once."""
        parts = DiskParts.assemble(ROOT, **self.arguments(self.files[0]))  # type: ignore[arg-type]
        parts.temporaries.collect()
        self.died = False

    @invariant()
    def nothing_is_left_open(self) -> None:
        """Between calls, no process has a file open."""
        assert [0, 0] == [files.open_descriptors for files in self.files]

    @invariant()
    def nothing_is_left_behind(self) -> None:
        """Unless a process died, there are no unfinished files."""
        if not self.died:
            assert 0 == self.nbytes_in(LAYOUT.temporary)

    @invariant()
    def quarantine_is_bounded(self) -> None:
        """What is in quarantine stays within the policy's bounds."""
        policy = DiskPolicy(capacity_nbytes=self.capacity_nbytes)
        assert self.nbytes_in(LAYOUT.quarantine) <= policy.quarantine_nbytes

    def nbytes_in(self, directory: str) -> int:
        """Physical bytes in a directory and below."""
        try:
            waiting = [self.disk.find(directory)]
        except OSError:
            return 0
        nbytes = 0
        while waiting:
            node = waiting.pop()
            nbytes += node.reserved_nbytes if stat.S_ISREG(node.mode) else 0
            waiting += node.names.values()
        return nbytes


class DurableDiskMachine(DiskMachine):
    """With durability `power`, a power cut loses nothing that was reported stored."""

    durability = Durability.POWER


class TightDiskMachine(DiskMachine):
    """A store that has room for four entries: whatever dies, the next put keeps the cap."""

    capacity_nbytes = 4 * (ENTRY_NBYTES // 2 + 4096)

    @rule(process=processes, ref=refs, rows=rows)
    def put(self, process: int, ref: EntryRef, rows: int) -> None:
        """After a put, everything together is within the cap."""
        frame = frame_of(ref, rows, rows=rows)
        self.possible[ref].add(frame_bytes(frame))
        outcome = self.stores[process].put(ref, frame)
        self.certain.clear()
        assume(outcome is not PutOutcome.REJECTED)
        assert self.stores[process].contains(ref)
        assert self.nbytes_in(LAYOUT.version) - self.table_nbytes() <= self.capacity_nbytes

    def table_nbytes(self) -> int:
        """Physical bytes of the accounting table, which no cap bounds."""
        try:
            return self.disk.find(LAYOUT.usage).reserved_nbytes
        except OSError:
            return 0


TestDiskMachine = DiskMachine.TestCase
TestDurableDiskMachine = DurableDiskMachine.TestCase
TestTightDiskMachine = TightDiskMachine.TestCase
