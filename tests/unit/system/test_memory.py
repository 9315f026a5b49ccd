"""What a process may still use of the host's memory, in and out of containers."""

from pathlib import Path

import pytest

from eccache.adapters.system.memory import available_memory_nbytes

MEMINFO = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 700 kB\n"


def written(root: Path, files: dict[str, str]) -> None:
    """Write *files*, by path below *root*."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 700 * 1024),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/own\n",
                "cgroup/own/memory.max": "500000\n",
                "cgroup/own/memory.current": "400000\n",
                "cgroup/own/memory.stat": "anon 1\ninactive_file 50000\n",
            },
            150_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/not/mounted\n",
                "cgroup/memory.max": "500000\n",
                "cgroup/memory.current": "400000\n",
            },
            100_000,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/\n",
                "cgroup/memory.max": "max\n",
                "cgroup/memory.current": "400000\n",
            },
            700 * 1024,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/own\n",
                "cgroup/memory/own/memory.limit_in_bytes": "500000\n",
                "cgroup/memory/own/memory.usage_in_bytes": "600000\n",
                "cgroup/memory/own/memory.stat": "total_inactive_file 0\n",
            },
            0,
        ),
    ],
    ids=["unknown", "host", "container", "container seen from inside", "no limit", "version 1"],
)
def test_available_memory(tmp_path: Path, files: dict[str, str], expected: int | None) -> None:
    """The least of what the kernel and each control group leave, cached files counted as free."""
    written(tmp_path, files)
    assert expected == available_memory_nbytes(tmp_path / "proc", tmp_path / "cgroup")


def test_this_machine_has_some() -> None:
    """The real files are understood."""
    available_nbytes = available_memory_nbytes()
    assert available_nbytes is not None
    assert available_nbytes > 1 << 20
