"""Where a worker's tensors go, and what vLLM wants to be told about waiting for it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def current_device() -> str:
    """Return the device of this worker as torch names it, e.g. `"cpu"` or `"cuda:1"`.

    Never without an index: a bare `"cuda"` is device 0, whichever device the rank was given.
    """
    import torch
    from vllm.platforms import current_platform

    kind = str(current_platform.device_type)
    return kind if kind == "cpu" else f"{kind}:{torch.accelerator.current_device_index()}"


def synchronization_allowed() -> AbstractContextManager[object]:
    """Return vLLM's mark around code that may wait for the device, where this vLLM has one."""
    try:
        from vllm.utils.gpu_sync_debug import gpu_sync_allowed
    except ImportError:
        return nullcontext()
    mark: AbstractContextManager[object] = gpu_sync_allowed()
    return mark
