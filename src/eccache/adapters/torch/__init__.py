"""Torch as the host framework, on CPU and CUDA."""

from eccache.adapters.torch.framework import TorchFramework
from eccache.adapters.torch.memory import host_memory

__all__ = ["TorchFramework", "host_memory"]
