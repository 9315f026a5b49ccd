"""What one process encoded, another does not encode again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from eccache.app.demo import torch_shim
from tests.unit.transformers_host.encode_once import NAMES, encoded

ROOT = Path(__file__).parents[3]


def test_another_process_is_served_bit_for_bit(tmp_path: Path) -> None:
    """A new process with an equal model gets every output of the first, and no encoder runs."""
    first = encoded(str(tmp_path))
    assert {name: [0, 2, {}] for name in NAMES} == {name: one[1:] for name, one in first.items()}
    environment = {**os.environ, **torch_shim.environment((str(ROOT), str(ROOT / "src")))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.transformers_host.encode_once", str(tmp_path)],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=environment,
        text=True,
    )
    second = json.loads(done.stdout.splitlines()[-1])
    assert {name: [first[name][0], 2, 0, {}] for name in NAMES} == second
