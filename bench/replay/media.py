"""What users send, how large its encoder output is, and what the encoder takes for it."""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Kind:
    """A kind of input, for Qwen2.5-VL-7B's row of 3,584 values.

    Attributes:
        name: In tables.
        rows: Fewest and most rows of its encoder output; drawn evenly on a logarithmic scale.
        seconds_per_row: What the encoder takes for each row, on an accelerator.
        seconds_per_square: What it takes on top for the square of the rows: attention over all of a picture.
        seconds: What it takes whatever the size: preparation and launches.
        share: Of the distinct inputs.
    """

    name: str
    rows: tuple[int, int]
    seconds_per_row: float
    seconds_per_square: float
    seconds: float
    share: float

    def encoder_seconds(self, rows: int) -> float:
        """Return what the encoder takes."""
        return self.seconds + rows * self.seconds_per_row + rows * rows * self.seconds_per_square


# A vision transformer of 675 million parameters at about 60 TFLOP/s: 4 patches a row, 2 operations a
# parameter, so 90 us a row; full attention in 4 of 32 layers adds the square. Frames of a video attend to
# their own frame. An audio encoder of the same size has fewer operations a row. Launches take 12 ms.
KINDS: Final = (
    Kind("thumbnail", (64, 256), 90e-6, 8e-9, 0.012, 0.30),
    Kind("photograph", (256, 1369), 90e-6, 8e-9, 0.012, 0.40),
    Kind("page", (1369, 5000), 90e-6, 8e-9, 0.012, 0.14),
    Kind("clip", (1500, 5000), 120e-6, 0.4e-9, 0.020, 0.10),
    Kind("video", (5000, 18252), 120e-6, 0.4e-9, 0.020, 0.03),
    Kind("audio", (100, 1500), 35e-6, 3e-9, 0.010, 0.03),
)
