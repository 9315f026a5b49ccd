"""A plugin for vLLM that switches on its count of the encoder's time, for which it has no argument.

`encoder_time.py` copies this file to where vLLM takes it for an installed plugin; vLLM calls `register` in
each of its processes, before it makes its configuration.
"""

from __future__ import annotations

import functools
from typing import Any


def register() -> None:
    """Let every configuration that this process makes count the encoder's time."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - vLLM's own
        self.enable_mm_processor_stats = True
        return original(self, *args, **kwargs)

    EngineArgs.create_engine_config = counting
