"""A torchvision that does not load beside a CPU build of torch, cured as the demo does."""

from __future__ import annotations

import importlib
import os

from eccache.app.demo import torch_shim


def cure() -> None:
    """Make vLLM importable in this process."""
    os.environ[torch_shim.BROKEN_PACKAGES] = ",".join(torch_shim.broken_packages())
    importlib.import_module("eccache.app.demo.torch_shim.sitecustomize")


def cured_environment() -> dict[str, str]:
    """Return the environment for a process that imports vLLM."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    return dict(os.environ) | QUIET | torch_shim.environment((here, *inherited))


QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "LMCACHE_LOG_LEVEL": "ERROR",
    "LMCACHE_TRACK_USAGE": "false",
}
"""Nothing is asked of a network, nothing printed."""
