"""How many bytes one to eight processes read and write together, in one directory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.micro import ours
from bench.rows import Row
from bench.setting import Setting
from bench.sizes import EntrySize

COUNTS = (1, 2, 4, 8)
QUICK_COUNTS = (1, 2)
SECONDS = 4.0
QUICK_SECONDS = 0.3
VIDEO = EntrySize("34.3 MB", 4802, 1)
PICTURE = EntrySize("4 MB", 558, 1)
STORED = 8

_PROGRAM = """
import json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from bench.micro import ours
from bench.sizes import EntrySize
folder, verb, rows, me, start, seconds = sys.argv[1:]
tensor = EntrySize("", int(rows), 1).tensor() if verb == "put" else None
with ours.opened(Path(folder)) as cache:
    if verb == "get":
        assert cache.get("0") is not None
    while time.time() < float(start):
        time.sleep(0.001)
    taken, end = [], time.time() + float(seconds)
    while time.time() < end:
        begin = time.perf_counter()
        if verb == "get":
            assert cache.get(str(len(taken) % %d)) is not None
        else:
            ours.stored(cache, f"{me}-{len(taken) % %d}-{time.time()}", tensor)
        taken.append(time.perf_counter() - begin)
print(json.dumps(taken))
"""


def rows(setting: Setting) -> Iterator[Row]:
    """Measure reading and writing with growing numbers of processes."""
    for verb, size in (("get", VIDEO), ("put", PICTURE)):
        for count in QUICK_COUNTS if setting.quick else COUNTS:
            seconds = QUICK_SECONDS if setting.quick else SECONDS
            bytes_per_second = _together(setting.folder / verb, verb, size, count, seconds)
            yield Row(
                operation=f"{verb} of {size.label} by all processes together, a second",
                size=f"{count} processes",
                measured=bytes_per_second,
                unit="B",
                axis="processes",
                x=count,
            )


def _together(folder: Path, verb: str, size: EntrySize, count: int, seconds: float) -> float:
    """Return the bytes a second that *count* processes move together."""
    with ours.opened(folder) as cache:
        for number in range(STORED if verb == "get" else 1):
            ours.stored(cache, str(number), size.tensor(number))
    start = time.time() + 6 + 2 * count
    program = _PROGRAM.replace("%d", str(STORED))
    arguments = [str(folder), verb, str(size.rows)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments, str(number), str(start), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for number in range(count)
    ]
    operations = 0
    for process in running:
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"a process that should {verb} ended with {process.returncode}")
        operations += len(json.loads(output))
    shutil.rmtree(folder)
    return operations * size.nbytes / seconds
