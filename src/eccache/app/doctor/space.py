"""Is there room for what the caps promise?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eccache.app.amounts import shown_bytes
from eccache.app.config.loading import DEFAULT
from eccache.app.doctor.finding import Finding, error, ok, warning
from eccache.app.doctor.machine import Mount
from eccache.app.doctor.subject import Subject

CHECK = "space"
_FEW_FILES = 10_000
SMALL_NBYTES: Final = 64 << 20
"""Less than this is less than an encoder output may take."""
SIZES: Final = "an encoder output takes 0.1 to 150 MB"
_MAKE_ROOM: Final = "free space, name another directory, or lower min_free_space_ratio."
_NO_FILES: Final = frozenset(
    {
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    }
)
"""File systems that show the kernel, and keep nothing."""


def existing_part(path: str) -> str:
    """Return *path*, or the nearest directory above it that exists."""
    here = Path(path)
    # Of what this user can't look at, nothing is known to exist.
    return str(next(place for place in (here, *here.parents) if os.path.exists(place)))  # noqa: PTH110


def kernels_own(subject: Subject) -> Mount | None:
    """Return the file system of the root if it is one that shows the kernel and takes no files."""
    if subject.root is None:
        return None
    mount = subject.machine.mount_of(existing_part(subject.root))
    return mount if mount is not None and mount.kind in _NO_FILES else None


def check_space(subject: Subject) -> Iterator[Finding]:
    """Report a cap that the file system can't hold beside the floor of free space, and few inodes."""
    config = subject.config
    if config is None or subject.root is None or config.local_disk is None:
        return
    if kernels_own(subject) is not None:
        return
    place = existing_part(subject.root)
    try:
        space = subject.machine.space(place)
        inodes = subject.machine.free_inodes(place)
    except OSError as failed:
        yield error(
            CHECK,
            f"the room on {place} can't be told",
            f"the system says: {failed.strerror}.",
            "look whether the file system is mounted and answers.",
        )
        return
    floor_nbytes = int(space.total_nbytes * config.min_free_space_ratio)
    usable_nbytes = max(0, space.free_nbytes - floor_nbytes) + subject.stored_nbytes
    cap_nbytes = config.max_local_disk_nbytes
    if usable_nbytes < min(cap_nbytes, SMALL_NBYTES) and space.free_nbytes <= floor_nbytes:
        stored = f"more than the {shown_bytes(usable_nbytes)} that are stored"
        yield error(
            CHECK,
            f"there is no room for {stored if usable_nbytes else 'a single entry'}",
            f"{shown_bytes(space.free_nbytes)} are free on {place}, and {shown_bytes(floor_nbytes)} of it "
            f"are left free (min_free_space_ratio {config.min_free_space_ratio}).",
            _MAKE_ROOM,
        )
    elif min(usable_nbytes, cap_nbytes) < SMALL_NBYTES:
        yield _too_small(place, usable_nbytes, cap_nbytes)
    elif usable_nbytes < cap_nbytes and _is_default(subject):
        yield ok(
            CHECK,
            f"{shown_bytes(usable_nbytes)}; the default cap of {shown_bytes(cap_nbytes)} is above it",
        )
    elif usable_nbytes < cap_nbytes:
        yield warning(
            CHECK,
            f"the cap of {shown_bytes(cap_nbytes)} can't be reached",
            f"only {shown_bytes(usable_nbytes)} can be used: {shown_bytes(space.free_nbytes)} are free on "
            f"{place}, of which {shown_bytes(floor_nbytes)} are left free (min_free_space_ratio "
            f"{config.min_free_space_ratio}).",
            f"nothing, if evicting earlier is all right; else {_MAKE_ROOM}",
        )
    else:
        yield ok(CHECK, f"{shown_bytes(usable_nbytes)} for a cap of {shown_bytes(cap_nbytes)}")
    if inodes is not None and inodes < _FEW_FILES:
        yield warning(
            CHECK,
            f"only {inodes} more files can be made on {place}",
            "each entry is a file, in one of 4,096 directories a namespace.",
            "free inodes, or use a file system that makes them as needed (XFS, Btrfs).",
        )


def _is_default(subject: Subject) -> bool:
    """Whether nobody chose the cap, so that nobody expects it to be reached."""
    return subject.loaded is None or subject.loaded.sources["max_local_disk_size"] == DEFAULT


def _too_small(place: str, usable_nbytes: int, cap_nbytes: int) -> Finding:
    by_cap = cap_nbytes < usable_nbytes
    why = "that is the cap" if by_cap else f"there is no more room on {place}"
    return warning(
        CHECK,
        f"only {shown_bytes(min(usable_nbytes, cap_nbytes))} can be stored",
        f"{why}, and {SIZES}: larger ones are never stored, others soon evicted.",
        "raise max_local_disk_size; it is in GiB." if by_cap else _MAKE_ROOM,
    )
