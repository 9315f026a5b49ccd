"""What weights are: a digest of all their bytes, and samples that show changes torch did not count."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

import torch

from eccache.adapters.transformers.tensor_bytes import dtype_name, tensor_bytes

SAMPLES_PER_TENSOR: Final = 64
_THREADS: Final = 4
_AS_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_PLAIN_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)

TensorMark: TypeAlias = tuple[int, int | None, int]
"""What changes when torch changes a tensor: its identity, its count of changes, its address."""


def is_readable(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's bytes are its content."""
    return type(tensor) in _PLAIN_TENSORS and tensor.layout is torch.strided


def tensor_mark(tensor: torch.Tensor) -> TensorMark:
    """Return what torch counts of changes to *tensor*."""
    version = None if tensor.is_inference() else tensor._version  # noqa: SLF001 - torch's documented counter
    return id(tensor), version, tensor.data_ptr()


def weights_digest(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and bytes of *tensors*, in hex.

    Two gigabytes a second and thread where the processor has SHA instructions; hashing releases the GIL.
    """
    named = sorted(tensors, key=lambda pair: pair[0])
    whole = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="eccache-digest") as threads:
        digests = threads.map(lambda pair: hashlib.sha256(tensor_bytes(pair[1])).hexdigest(), named)
        for (name, tensor), digest in zip(named, digests, strict=True):
            whole.update(
                f"{name}\0{dtype_name(tensor)}\0{tuple(tensor.shape)}\0{digest}\n".encode()
            )
    return whole.hexdigest()


class WeightSamples:
    """Elements spread evenly over each tensor, to be read again and compared.

    torch counts changes that are made to a tensor, but not those made through `tensor.data` or through
    another library's view of its memory. Such a change is seen here if it touches a sampled element: any
    optimizer, averaging, merging or scaling does. One that changes a few elements of a large tensor
    behind torch's back may not be.

    Args:
        tensors: looked at where they lie, and kept alive.
    """

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._views: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = defaultdict(list)
        for _, tensor in tensors:
            view = _sampled(tensor)
            if view is not None:
                self._views[view.dtype, view.device].append(view)

    def read(self) -> bytes:
        """Return the sampled elements as they are now."""
        return b"".join(bytes(tensor_bytes(torch.cat(views))) for views in self._views.values())


def _sampled(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a view of elements of *tensor*'s memory, as integers of their size; None if it has none."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    extent = min(tensor.numel(), elements)
    integers = _AS_INTEGERS.get(tensor.element_size())
    if extent == 0 or integers is None:
        return None
    step = -(-extent // SAMPLES_PER_TENSOR)
    count = -(-extent // step)
    plain = tensor.detach()
    return plain.as_strided((count,), (step,), plain.storage_offset()).view(integers)
