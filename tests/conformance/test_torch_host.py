"""Torch does what a host framework does."""

from __future__ import annotations

import pytest
import torch

from eccache.adapters.torch import TorchFramework
from eccache.domain.dtypes import DTYPES
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.host_conformance import HostFrameworkConformance


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, on quantized and nested tensors
class TestTorchFramework(HostFrameworkConformance[torch.Tensor]):
    """Conformance of torch on the CPU."""

    dtypes = tuple(DTYPES)

    def make_host(self) -> TorchFramework:
        """Return the adapter."""
        return TorchFramework()

    def make_tensor(self, spec: TensorSpec, payload: bytes) -> torch.Tensor:
        """Return a tensor made of a list of bytes."""
        flat = torch.tensor(list(payload), dtype=torch.uint8)
        return flat.view(getattr(torch, spec.dtype)).reshape(spec.shape)

    def read(self, tensor: torch.Tensor) -> bytes:
        """Return its bytes as a list would have them."""
        return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())

    def overwrite(self, tensor: torch.Tensor) -> None:
        """Set it to zero."""
        tensor.zero_()

    def transpose(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the transposed view."""
        return tensor.T

    def first_row(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the first row."""
        return tensor[:1]

    def refused(self) -> list[object]:
        """Return what torch has besides dense tensors."""
        return [
            (torch.zeros(1),),
            [torch.zeros(1)],
            3.0,
            torch.eye(3).to_sparse(),
            torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8),
            torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
            torch.zeros(1, dtype=torch.complex128),
            torch.empty(2, device="meta"),
            torch.zeros([1] * 9),
        ]
