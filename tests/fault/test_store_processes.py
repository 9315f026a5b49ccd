"""Real processes share one root, and are killed while they do.

Set `ECCACHE_NIGHTLY=1` for a thousand kills: twenty rounds of fifty.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import pytest

from eccache.testing.frames import ref_of
from tests.conftest import NIGHTLY
from tests.fault.store_workers import (
    MAX_ENTRY_NBYTES,
    Place,
    do_everything,
    frame_of,
    read,
    write_for_ever,
)

KILLS = 50
ROUNDS = 20 if NIGHTLY else 1
WRITERS = 3
PROCESSES = 8
TURNS = 200 if NIGHTLY else 40
F_SETPIPE_SZ = 1031
AMPLE_NBYTES = 1 << 40
TIGHT_NBYTES = 16 << 20

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["__main__", "tests.fault.store_workers"])


@attrs.define
class Writer:
    """A process that writes until it is killed.

    Attributes:
        process: the process.
        reports: what it says.
        begun: the entry that it was last heard to begin.
        stored: the entries that it said are stored.
    """

    process: multiprocessing.process.BaseProcess
    reports: Connection
    begun: str | None = None
    stored: list[str] = attrs.field(factory=list)

    @classmethod
    def start(cls, place: Place, seed: int) -> Writer:
        """Start one."""
        mine, its = CONTEXT.Pipe(duplex=False)
        fcntl.fcntl(its.fileno(), F_SETPIPE_SZ, 4096)
        process = CONTEXT.Process(target=write_for_ever, args=(place, seed, its), daemon=True)
        process.start()
        its.close()
        return cls(process, mine)

    def hear(self) -> None:
        """Take in one thing that it says.

        Raises:
            EOFError: it is dead.
        """
        what, detail, _ = self.reports.recv()
        assert what != "failed", detail
        if what == "stored":
            self.stored.append(detail)
        else:
            self.begun = detail

    def kill(self) -> None:
        """Kill it wherever it is, and take in what it said before."""
        self.process.kill()
        self.process.join()
        try:
            while True:
                self.hear()
        except EOFError:
            self.reports.close()


def kill_writers(place: Place, kills: int, seed: int) -> Iterator[Writer]:
    """Keep `WRITERS` writing and kill one after the other at random moments; yield each of the dead."""
    rng = random.Random(seed)
    writers = [Writer.start(place, number) for number in range(WRITERS)]
    for number in range(WRITERS, WRITERS + kills):
        for _ in range(rng.randrange(1, 14)):
            for writer in writers:
                writer.hear()
        victim = writers.pop(rng.randrange(WRITERS))
        victim.kill()
        yield victim
        writers.append(Writer.start(place, number))
    for writer in writers:
        writer.kill()
        yield writer


@pytest.fixture(params=["disk", "tmpfs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder on the disk, and one in shared memory."""
    if request.param == "disk":
        yield tmp_path
        shutil.rmtree(tmp_path)  # Gigabytes, which pytest would keep.
    else:
        path = Path(tempfile.mkdtemp(prefix="eccache-test-", dir="/dev/shm"))
        yield path
        shutil.rmtree(path)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_writers_lose_only_what_they_had_not_stored(tmp_path: Path, seed: int) -> None:
    """After every kill: all that was stored is there, bit by bit, and no unfinished file is left."""
    place = Place(str(tmp_path / "root"), AMPLE_NBYTES)
    dead = list(kill_writers(place, KILLS, seed))
    place.maintenance().collect(progress=lambda *_: None)
    assert [] == place.unfinished()
    store = place.store()
    stored = [name for writer in dead for name in writer.stored]
    assert len(stored) > KILLS
    assert [] == [name for name in stored if not read(store, name)]
    for writer in dead:
        if writer.begun is not None:
            read(store, writer.begun)  # Whole or absent, never damaged.
    assert place.physical_nbytes() == store.stats().nbytes
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("has_locks", [True, False], ids=["locks", "no locks"])
def test_the_cap_holds_whoever_is_killed(folder: Path, *, has_locks: bool) -> None:
    """At no kill is more there than the cap and what is being written; at the end, not even that."""
    place = Place(str(folder / "root"), TIGHT_NBYTES, has_locks)
    peak_nbytes = 0
    for _ in kill_writers(place, KILLS // 2, seed=2):
        peak_nbytes = max(peak_nbytes, place.physical_nbytes())
    assert peak_nbytes <= TIGHT_NBYTES + WRITERS * MAX_ENTRY_NBYTES
    store = place.store()
    store.put(ref_of("the last"), frame_of("the last"))
    assert place.physical_nbytes() <= TIGHT_NBYTES
    assert read(store, "the last")
    assert place.physical_nbytes() > TIGHT_NBYTES // 2


@pytest.mark.parametrize("has_locks", [True, False], ids=["locks", "no locks"])
def test_many_processes_do_everything_at_once(folder: Path, *, has_locks: bool) -> None:
    """Eight processes put, read, evict, remove, verify and collect: no wrong read, no fault, one cap."""
    place = Place(str(folder / "root"), TIGHT_NBYTES, has_locks)
    place.store()
    mine, its = CONTEXT.Pipe(duplex=False)
    workers = [
        CONTEXT.Process(target=do_everything, args=(place, seed, TURNS, its), daemon=True)
        for seed in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    its.close()
    peak_nbytes = 0
    reports: list[tuple[str, Any, str]] = []
    while len(reports) < PROCESSES:
        if mine.poll():
            reports.append(mine.recv())
        peak_nbytes = max(peak_nbytes, place.physical_nbytes())
    for worker in workers:
        worker.join()
    assert [] == [detail for what, detail, _ in reports if what == "failed"]
    assert peak_nbytes <= TIGHT_NBYTES + PROCESSES * MAX_ENTRY_NBYTES
    assert sum(detail for _, detail, _ in reports) > TURNS
    place.maintenance().collect(progress=lambda *_: None)
    assert place.physical_nbytes() == place.store().stats().nbytes <= TIGHT_NBYTES
    if has_locks:
        assert [] == place.unfinished()
    assert os.getpid() != 1
