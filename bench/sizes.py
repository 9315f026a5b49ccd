"""The entries that are measured: encoder outputs of a 7B model with 3,584 values a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    import torch

HIDDEN: Final = 3584


@attrs.frozen
class EntrySize:
    """An encoder output's shape.

    Attributes:
        label: In tables.
        rows: Tokens.
        rounds: Samples to take of what costs about one copy.
    """

    label: str
    rows: int
    rounds: int

    @property
    def nbytes(self) -> int:
        """Bytes of payload."""
        return self.rows * HIDDEN * 2

    def tensor(self, seed: int = 0) -> torch.Tensor:
        """Return random bfloat16 `[rows, 3584]`."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        bits = torch.randint(
            -(1 << 15), 1 << 15, (self.rows, HIDDEN), dtype=torch.int16, generator=generator
        )
        return bits.view(torch.bfloat16)


SIZES: Final = (
    EntrySize("0.5 MB", 70, 300),
    EntrySize("4 MB", 558, 150),
    EntrySize("34.3 MB", 4802, 60),
    EntrySize("130.8 MB", 18252, 30),
)
"""One small picture, one large picture, a video of 32 frames, a video of 128 frames."""
