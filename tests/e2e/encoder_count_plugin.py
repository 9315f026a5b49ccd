"""The plugin that `encoder_count.py` gives to vLLM; runs inside the server's processes."""

import functools
import json
import multiprocessing
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Grids = torch.Tensor | Sequence[Sequence[int]]


def register() -> None:
    """Wrap the vision tower's forward call, in processes that may hold a model."""
    if multiprocessing.current_process().name == "MainProcess":  # the API process holds none
        return
    from vllm.model_executor.models.qwen2_5_vl import Qwen2_5_VisionTransformer as Tower

    original = Tower.forward
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def counted(self: object, x: object, grid_thw: "Grids", **options: object) -> object:
        _record(grid_thw)
        return original(self, x, grid_thw, **options)

    Tower.forward = counted


def _record(grid_thw: "Grids") -> None:
    import torch

    distributed = torch.distributed
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    grids = grid_thw.tolist() if isinstance(grid_thw, torch.Tensor) else grid_thw
    line = (
        json.dumps({"pid": os.getpid(), "rank": rank, "grids": [list(grid) for grid in grids]})
        + "\n"
    )
    file = os.open(os.environ["ENCODER_COUNT_FILE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, line.encode())  # one call, appended: lines of two ranks never mix
    finally:
        os.close(file)
