"""The bytes of a tensor, in the order in which its elements are counted."""

from __future__ import annotations

import torch


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the row-major bytes of any dense tensor, on whatever device: 1-D, not to be written to.

    Nothing is copied where the tensor is contiguous and on the CPU.
    """
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if plain.numel() == 0:
        return memoryview(b"")
    return plain.reshape(-1).view(torch.uint8).numpy().data


def dtype_name(tensor: torch.Tensor) -> str:
    """Return the tensor's element type under torch's name, e.g. `"bfloat16"`."""
    return str(tensor.dtype).removeprefix("torch.")
