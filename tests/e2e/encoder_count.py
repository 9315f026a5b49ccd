"""Counts the runs of the vision encoder inside vLLM's worker processes.

Only the worker can tell whether an encoder output was computed or loaded. `lay_out_plugin` makes a folder
that, on `PYTHONPATH`, is to vLLM an installed plugin; vLLM calls it in every process of a server. The
plugin wraps the vision tower's forward call, and each call appends one line to a file.
"""

import json
from pathlib import Path

import attrs

PLUGIN = Path(__file__).parent / "encoder_count_plugin.py"
FILE_VARIABLE = "ENCODER_COUNT_FILE"


@attrs.frozen
class EncoderRun:
    """One forward call of the vision tower.

    Attributes:
        pid: The worker process.
        rank: Its rank; with tensor parallelism every rank runs every call.
        grids: Patches of each item in the call: time, height, width.
    """

    pid: int
    rank: int
    grids: tuple[tuple[int, int, int], ...]


def read_runs(file: Path) -> list[EncoderRun]:
    """All runs that the workers of a server have recorded, oldest first."""
    if not file.exists():
        return []
    records = [json.loads(line) for line in file.read_text().splitlines()]
    return [
        EncoderRun(
            pid=record["pid"],
            rank=record["rank"],
            grids=tuple((time, height, width) for time, height, width in record["grids"]),
        )
        for record in records
    ]
