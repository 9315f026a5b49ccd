"""An output tree as one tensor of bytes, so that it is one entry: whole, or not there.

Eight bytes with the length of the head, the head in JSON, then the tensors, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import json
from typing import Any, Final

import torch

from eccache.adapters.transformers.output_tree import OutputTree
from eccache.adapters.transformers.tensor_bytes import dtype_name, tensor_bytes
from eccache.domain.tensor_spec import TensorSpec

_ALIGNMENT: Final = 64
_LENGTH_NBYTES: Final = 8
_MAX_HEAD_NBYTES: Final = 1 << 20


def pack(tree: OutputTree) -> torch.Tensor:
    """Return *tree* as a new 1-D uint8 tensor on the device of its tensors."""
    described = [[dtype_name(tensor), list(tensor.shape)] for tensor in tree.tensors]
    head = json.dumps({"root": tree.root, "tensors": described}, separators=(",", ":")).encode()
    head += b" " * (-(len(head) + _LENGTH_NBYTES) % _ALIGNMENT)
    start = len(head).to_bytes(_LENGTH_NBYTES, "little") + head
    device = tree.tensors[0].device if tree.tensors else torch.device("cpu")
    pieces = [torch.frombuffer(bytearray(start), dtype=torch.uint8).to(device)]
    for tensor in tree.tensors:
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        piece = flat.view(torch.uint8)
        pieces += [piece, piece.new_zeros(-piece.numel() % _ALIGNMENT)]
    return torch.cat(pieces)


def unpack(packed: torch.Tensor, device: torch.device) -> OutputTree:
    """Return the tree that *packed* was made of; its tensors are views of one storage on *device*.

    Args:
        packed: what `pack` returned, on the CPU.
        device: where the tensors shall be.

    Raises:
        ValueError: it is nothing that `pack` returns.
    """
    start = _LENGTH_NBYTES + _head_nbytes(packed)
    root, specs = _parsed(bytes(tensor_bytes(packed[_LENGTH_NBYTES:start])))
    moved = packed.to(device)
    tensors: list[torch.Tensor] = []
    for spec in specs:
        piece = moved[start : start + spec.nbytes]
        if piece.numel() != spec.nbytes:
            raise ValueError("a packed output ends too early")
        dtype: torch.dtype = getattr(torch, spec.dtype)
        tensors.append(piece.view(dtype).reshape(spec.shape))
        start += spec.nbytes + -spec.nbytes % _ALIGNMENT
    if start != moved.numel():
        raise ValueError("a packed output has more bytes than tensors")
    return OutputTree(root, tuple(tensors))


def _head_nbytes(packed: torch.Tensor) -> int:
    if packed.dtype is not torch.uint8 or packed.dim() != 1:
        raise ValueError("a packed output is 1-D bytes")
    nbytes = int.from_bytes(bytes(tensor_bytes(packed[:_LENGTH_NBYTES])), "little")
    if nbytes > min(packed.numel(), _MAX_HEAD_NBYTES):
        raise ValueError("a packed output's head is too long")
    return nbytes


def _parsed(head: bytes) -> tuple[Any, list[TensorSpec]]:
    parsed = json.loads(head)
    match parsed:
        case {"root": dict(root), "tensors": list(described)}:
            return root, [TensorSpec(dtype, tuple(shape)) for dtype, shape in described]
        case _:
            raise ValueError("a packed output's head says nothing of tensors")
