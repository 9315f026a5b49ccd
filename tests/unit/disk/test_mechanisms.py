"""Each mechanism of the native store, taken away, makes the test fail that is there for it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eccache.adapters.disk import (
    accounting,
    admission,
    directories,
    eviction,
    layout,
    publisher,
    quarantine,
    recency,
    root,
    temporaries,
)
from eccache.adapters.system import files as system_files
from eccache.domain import entry_format, frame
from eccache.domain.outcomes import RemoveReason
from eccache.testing.simulated_process import SimulatedProcess
from tests.conformance.test_disk_store import TestDiskStore as Conformance
from tests.unit.disk import (
    test_bounds,
    test_crash_points,
    test_hostility,
    test_injected_faults,
    test_large_shards,
    test_quarantine,
    test_root,
    test_unfinished_files,
)

Patch = pytest.MonkeyPatch


def nothing(*_: object, **__: object) -> None:
    """Stand in for a mechanism that is taken away."""


def without_rename(patch: Patch) -> None:
    """Write to the final name."""

    def publish(self: Any, path: str, write: Callable[[int], None]) -> None:  # noqa: ANN401
        self._directories.make(layout.parent(path))
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(path)
        descriptor = self._files.create(path, 0o600)
        write(descriptor)
        self._files.close(descriptor)

    patch.setattr(publisher.Publisher, "_publish", publish)


def without_checksum(patch: Patch) -> None:
    """Take every digest for the right one."""
    patch.setattr(entry_format.FrameHasher, "matches", lambda _: True)


def without_identity(patch: Patch) -> None:
    """Take every input for the right one."""
    patch.setattr(entry_format, "check_identity", nothing)


def without_shape(patch: Patch) -> None:
    """Keep whatever is whole."""
    patch.setattr(frame, "is_kept", lambda *_: True)
    patch.setattr("eccache.adapters.disk.store.is_kept", lambda *_: True)


def without_accounting(patch: Patch) -> None:
    """Count nothing."""
    patch.setattr(accounting.Accounting, "chart", nothing)
    patch.setattr(accounting.Accounting, "charge", nothing)


def without_charge(patch: Patch) -> None:
    """Count only afterwards."""
    charge = accounting.Accounting.charge

    def discharge(self: Any, shard: int, nbytes: int, entries: int) -> None:  # noqa: ANN401
        if nbytes < 0:
            charge(self, shard, nbytes, entries)

    patch.setattr(accounting.Accounting, "charge", discharge)


def without_rotation(patch: Patch) -> None:
    """Rescan only what changed."""
    patch.setattr(accounting.Accounting, "rotate", nothing)


def without_second_look(patch: Patch) -> None:
    """Believe a rescan that was overtaken."""
    patch.setattr(accounting, "_RESCANS", 1)


def without_looking_again(patch: Patch) -> None:
    """Take what changes during a scan of everything for what was scanned."""
    patch.setattr(accounting.Accounting, "_changed_since", lambda *_: set())


def without_boots(patch: Patch) -> None:
    """Believe a table that a power cut may have torn."""
    patch.setattr(SimulatedProcess, "boot", lambda _: "always the same")


def without_eviction(patch: Patch) -> None:
    """Make no room."""
    patch.setattr(eviction.Evictor, "free", lambda *_: 0)


def without_floor(patch: Patch) -> None:
    """Fill the file system."""
    patch.setattr(admission.Admission, "_above_floor", lambda *_: True)


def without_recency(patch: Patch) -> None:
    """Note no use."""
    patch.setattr(recency.Recency, "touch", nothing)


def without_coarseness(patch: Patch) -> None:
    """Note every use."""
    patch.setattr(recency.Recency, "touch", lambda self, descriptor, _: self.set(descriptor))


def without_horizon(patch: Patch) -> None:
    """Believe times of the far future."""
    patch.setattr(recency.Recency, "ranking", lambda _: lambda modified_ns: modified_ns)


def without_stepping_over(patch: Patch) -> None:
    """Try the oldest only."""
    patch.setattr(eviction, "_FRUITLESS_ROUNDS", 1)

    def evict(self: Any, candidate: Any) -> bool:  # noqa: ANN401
        self._files.unlink(candidate.path)
        return True

    patch.setattr(eviction.Evictor, "_evict", evict)


def without_second_thoughts(patch: Patch) -> None:
    """Evict what was the oldest when it was seen."""

    def evict(self: Any, candidate: Any) -> bool:  # noqa: ANN401
        with contextlib.suppress(OSError):
            self._files.unlink(candidate.path)
            return True
        return False

    patch.setattr(eviction.Evictor, "_evict", evict)


def without_haste(patch: Patch) -> None:
    """Look at every shard, however large."""
    patch.setattr(accounting, "QUICK_ENTRIES", 1 << 30)


def without_file_sync(patch: Patch) -> None:
    """Hope that bytes are written."""
    patch.setattr(SimulatedProcess, "sync", nothing)


def without_directory_sync(patch: Patch) -> None:
    """Hope that names are written."""
    patch.setattr(SimulatedProcess, "sync_directory", nothing)


def without_anchors(patch: Patch) -> None:
    """Sync the directory of an entry, but not the names of directories."""

    def anchor(self: Any, path: str) -> None:  # noqa: ANN401
        self._files.sync_directory(path)

    patch.setattr(directories.Directories, "anchor", anchor)


def without_securing(patch: Patch) -> None:
    """Take for durable what another process published."""
    patch.setattr(publisher.Publisher, "secure", nothing)


def without_cleaning_up(patch: Patch) -> None:
    """Leave what a failed put wrote."""
    unlink = SimulatedProcess.unlink

    def keep(self: SimulatedProcess, path: str) -> None:
        if "/unfinished/" not in path:
            unlink(self, path)

    patch.setattr(SimulatedProcess, "unlink", keep)


def without_locks(patch: Patch) -> None:
    """Take every file for abandoned."""
    patch.setattr(temporaries.Temporaries, "_has_writer", lambda *_: False)
    patch.setattr(temporaries.Temporaries, "_can_trust_locks", lambda *_: True)


def without_doubting_locks(patch: Patch) -> None:
    """Believe in locks that lock nothing."""
    patch.setattr(temporaries.Temporaries, "_can_trust_locks", lambda *_: True)


def without_looking_after_locking(patch: Patch) -> None:
    """Write to a file that was taken away before it was locked."""
    patch.setattr(temporaries.Temporaries, "_is_linked", lambda *_: True)


def without_doubting_blocks(patch: Patch) -> None:
    """Believe a file system that a file occupies nothing."""
    for module in (accounting, eviction, publisher, temporaries):
        patch.setattr(module, "physical_nbytes", lambda status: status.st_blocks * 512)


def without_asking_what_may_fit(patch: Patch) -> None:
    """Evict for what is in the way of others' unfinished writes all the same."""
    patch.setattr(admission.Admission, "_may_fit", lambda *_: True)


def without_making_durable_anew(patch: Patch) -> None:
    """Take a directory for the one that had its name before."""
    make = directories.Directories.make

    def remake(self: Any, path: str) -> None:  # noqa: ANN401
        anchored = set(self._anchored)
        make(self, path)
        self._anchored |= anchored

    patch.setattr(directories.Directories, "make", remake)


def without_warning_of_others(patch: Patch) -> None:
    """Say nothing of a root that everybody may write to."""
    patch.setattr(root.stat, "S_IWOTH", 0)  # type: ignore[attr-defined]


def without_writing_again(patch: Patch) -> None:
    """Give up when the unfinished file is taken away."""
    patch.setattr(publisher, "_ATTEMPTS", 1)


def without_unique_names(patch: Patch) -> None:
    """Write one entry's unfinished file under one name."""
    patch.setattr(temporaries.secrets, "token_hex", lambda _: "the same")  # type: ignore[attr-defined]

    def create(self: SimulatedProcess, path: str, mode: int) -> int:
        with contextlib.suppress(OSError):
            return self.open(path, writable=True)
        return real(self, path, mode)

    real = SimulatedProcess.create
    patch.setattr(SimulatedProcess, "create", create)


def without_bounds_of_quarantine(patch: Patch) -> None:
    """Keep everything that is damaged."""
    patch.setattr(quarantine.Quarantine, "keep_bounds", nothing)


def without_ownership(patch: Patch) -> None:
    """Use anybody's directory."""
    patch.setattr(root, "_require_ours", nothing)


def without_modes(patch: Patch) -> None:
    """Let the umask decide."""
    patch.setattr(system_files.SystemFiles, "set_mode", nothing)


def following_links(patch: Patch) -> None:
    """Open whatever a name leads to."""
    flags = system_files._OPEN & ~system_files.os.O_NOFOLLOW  # type: ignore[attr-defined]  # noqa: SLF001
    patch.setattr(system_files, "_OPEN", flags)


def taking_faults_for_misses(patch: Patch) -> None:
    """Take every error for an absence."""
    patch.setattr("eccache.adapters.disk.store.NOT_THERE", frozenset(errno.errorcode))


def conformance(name: str) -> Callable[[Path], None]:
    """Return a test of the conformance suite, on a store of its own."""

    def run(tmp_path: Path) -> None:
        suite = Conformance()
        getattr(suite, name)(suite.make_store(tmp_path, 64 << 20))

    return run


def crash(name: str, *arguments: object, **options: object) -> Callable[[Path], None]:
    """Return a test on a simulated disk."""
    modules = (
        *(test_crash_points, test_bounds, test_injected_faults),
        *(test_large_shards, test_quarantine, test_root, test_unfinished_files),
    )
    (test,) = [getattr(module, name) for module in modules if hasattr(module, name)]
    return lambda _: test(*arguments, **options)


def on_disk(test: Callable[..., None], *arguments: object) -> Callable[[Path], None]:
    """Return a test in a folder."""

    def run(tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_bytes(test_hostility.SECRET)
        test(tmp_path, *(secret if each == "secret" else each for each in arguments))

    return run


MECHANISMS: list[tuple[Callable[[Patch], None], Callable[[Path], None]]] = [
    (
        without_rename,
        crash(
            "test_a_process_that_dies_leaves_the_old_the_new_or_nothing",
            test_crash_points.put_new,
            fresh=False,
        ),
    ),
    (
        without_checksum,
        crash("test_a_power_cut_leaves_the_old_the_new_or_damage_that_is_seen", 0),
    ),
    (without_checksum, conformance("test_put_replaces_a_damaged_frame")),
    (without_identity, conformance("test_put_replaces_another_inputs_frame")),
    (without_accounting, crash("test_the_floor_of_free_space_is_kept")),
    (without_accounting, crash("test_the_table_is_what_is_there")),
    (without_charge, crash("test_after_any_death_the_next_put_keeps_the_cap")),
    (without_rotation, crash("test_wrong_numbers_converge")),
    (without_second_look, crash("test_a_change_during_a_rescan_is_seen")),
    (without_looking_again, crash("test_what_changes_while_a_table_is_made_anew_is_counted")),
    (without_boots, crash("test_after_a_power_cut_the_cap_holds")),
    (without_eviction, crash("test_the_least_recently_used_go_first")),
    (without_eviction, crash("test_a_full_file_system_is_relieved_by_eviction")),
    (without_floor, crash("test_the_floor_of_free_space_is_kept")),
    (without_recency, crash("test_the_least_recently_used_go_first")),
    (without_coarseness, crash("test_reading_touches_now_and_then")),
    (without_horizon, crash("test_a_clock_that_is_set_keeps_eviction_sane", -1e8)),
    (without_horizon, crash("test_a_time_from_the_far_future_does_not_live_for_ever")),
    (without_stepping_over, crash("test_what_cannot_be_deleted_is_stepped_over")),
    (without_second_thoughts, crash("test_an_entry_that_was_used_since_it_was_seen_stays")),
    (without_haste, crash("test_a_put_into_a_large_shard_does_not_look_at_it")),
    (without_file_sync, crash("test_durability_power_keeps_what_was_stored", 0, fresh=True)),
    (without_directory_sync, crash("test_durability_power_keeps_what_was_stored", 0, fresh=True)),
    (without_anchors, crash("test_durability_power_keeps_what_was_stored", 0, fresh=True)),
    (without_securing, crash("test_durability_power_keeps_what_was_stored", 0, fresh=True)),
    (
        without_cleaning_up,
        crash("test_a_put_fails_as_a_whole_or_not_at_all", errno.EIO, "process", fresh=False),
    ),
    (without_locks, crash("test_what_is_being_written_is_left_alone")),
    (without_doubting_locks, crash("test_without_locks_age_decides")),
    (
        without_looking_after_locking,
        crash("test_a_file_that_is_taken_away_before_it_is_locked_is_never_written", 1),
    ),
    (
        without_doubting_blocks,
        crash("test_the_cap_holds_where_a_file_system_does_not_tell_of_blocks"),
    ),
    (
        without_asking_what_may_fit,
        crash("test_nothing_is_evicted_for_what_would_not_fit_all_the_same"),
    ),
    (
        without_making_durable_anew,
        crash("test_a_directory_that_was_removed_and_made_again_is_made_durable_again", 2),
    ),
    (without_warning_of_others, crash("test_a_world_writable_root_is_warned_of")),
    (without_writing_again, crash("test_a_writer_whose_file_is_taken_away_writes_again", 1)),
    (without_unique_names, crash("test_writers_of_one_entry_use_files_of_their_own")),
    (without_bounds_of_quarantine, crash("test_the_number_of_damaged_entries_is_bounded")),
    (without_bounds_of_quarantine, crash("test_the_bytes_of_damaged_entries_are_bounded")),
    (without_ownership, crash("test_somebody_elses_root_is_refused", "/cache")),
    (without_modes, on_disk(test_root.test_a_shared_group_can_read_and_write_everything, 0o022)),
    (
        following_links,
        on_disk(
            test_hostility.test_a_plant_at_an_entrys_name_is_a_miss_and_gives_way,
            "secret",
            test_hostility.plant_link,
        ),
    ),
    (taking_faults_for_misses, crash("test_a_get_is_the_entry_or_a_fault", errno.EIO)),
    (
        taking_faults_for_misses,
        crash("test_a_removal_is_done_or_told", errno.EIO, RemoveReason.REMOVED),
    ),
]


@pytest.mark.parametrize(
    ("take_away", "test"),
    MECHANISMS,
    ids=[f"{take_away.__name__} {number}" for number, (take_away, _) in enumerate(MECHANISMS)],
)
def test_without_it_a_test_fails(
    take_away: Callable[[Patch], None],
    test: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    """The test passes with the mechanism and fails without it."""
    (tmp_path / "with").mkdir()
    test(tmp_path / "with")
    take_away(monkeypatch)
    (tmp_path / "without").mkdir()
    with pytest.raises((Exception, pytest.fail.Exception)):
        test(tmp_path / "without")
