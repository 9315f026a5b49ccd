"""A module that a server of ours loads as one of vLLM's plugins, without being installed."""

from __future__ import annotations

import shutil
from pathlib import Path


def lay_out_plugin(module: Path, folder: Path) -> Path:
    """Make *folder*, which goes on `PYTHONPATH`, look like an installed plugin of vLLM, and return it.

    Args:
        module: a file with a function `register`, which vLLM calls in each of its processes.
        folder: made if missing; may hold the same already.
    """
    metadata = folder / f"{module.stem}-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    shutil.copy(module, folder)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.stem.replace('_', '-')}\nVersion: 0\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{module.stem} = {module.stem}:register\n"
    )
    return folder
