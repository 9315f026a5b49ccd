"""What a dense tensor is, apart from its bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from eccache.domain.dtypes import DTYPES, canonical_dtype

MAX_RANK = 8
MAX_NBYTES = 1 << 46
"""64 TiB: far above any encoder output, far below where offsets could overflow."""
MAX_DIM = MAX_NBYTES
"""Bounds a dimension also where another is zero, and so no bytes are counted."""


def _valid_shape(_: object, __: object, shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_RANK:
        msg = f"rank {len(shape)} is above {MAX_RANK}"
        raise ValueError(msg)
    for dim in shape:
        if type(dim) is not int or not 0 <= dim <= MAX_DIM:
            msg = f"{str(dim)[:40]} is no dimension"
            raise ValueError(msg)


def _as_tuple(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(shape)


@attrs.frozen
class TensorSpec:
    """Element type and shape of a dense, row-major tensor.

    Attributes:
        dtype: torch's name, e.g. `"bfloat16"`.
        shape: 0 to 8 dimensions, each >= 0; `()` is a scalar. For an encoder output
            `(num_tokens, hidden_size)`.

    Raises:
        ValueError: unknown dtype, bad dimension, or more than `MAX_NBYTES` bytes.
    """

    dtype: str = attrs.field(converter=canonical_dtype)
    shape: tuple[int, ...] = attrs.field(converter=_as_tuple, validator=_valid_shape)

    def __attrs_post_init__(self) -> None:
        if self.nbytes > MAX_NBYTES:
            msg = f"{self.nbytes} bytes are above {MAX_NBYTES}"
            raise ValueError(msg)

    @property
    def nbytes(self) -> int:
        """Bytes of payload."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    @property
    def rows(self) -> int | None:
        """Size of the first dimension, for an encoder output its number of tokens; None for a scalar."""
        return self.shape[0] if self.shape else None
