"""How much memory this process may still use."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")


def available_memory_nbytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return what the kernel thinks can be used without swapping, within this container's limit.

    Args:
        proc: where the proc file system is.
        cgroups: where the control groups are.

    Returns:
        Bytes; None where the system does not tell.
    """
    known = [_free_on_the_host(proc), *_left_in_containers(proc, cgroups)]
    return min((nbytes for nbytes in known if nbytes is not None), default=None)


def _free_on_the_host(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return int(amount.split()[0]) * 1024
    return None


def _left_in_containers(proc: Path, cgroups: Path) -> list[int | None]:
    """Return what is left below the limits of this process's control groups, of either version."""
    left: list[int | None] = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit, used, cache = cgroups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base, limit = cgroups / "memory", "memory.limit_in_bytes"
            used, cache = "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # Inside a container its own group is usually mounted as the uppermost one.
        left += [_left(group, limit, used, cache) for group in (base / path.lstrip("/"), base)]
    return left


def _left(group: Path, limit: str, used: str, cache: str) -> int | None:
    """Return a group's limit less its working set: cached files that nobody uses can go."""
    try:
        limit_nbytes = int((group / limit).read_text())
        used_nbytes = int((group / used).read_text())
    except (OSError, ValueError):  # There is no such group, or its limit is "max".
        return None
    for line in _lines(group / "memory.stat"):
        name, _, amount = line.partition(" ")
        if name == cache:
            used_nbytes -= int(amount)
    return max(0, limit_nbytes - used_nbytes)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
