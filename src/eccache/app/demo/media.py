"""Real photographs, and a short real MP4 made from them, without a network.

scikit-image ships photographs with its wheel; OpenCV comes with vLLM and encodes the video.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Picture: TypeAlias = NDArray[np.uint8]

PHOTOGRAPHS: Final = ("astronaut", "coffee", "chelsea", "rocket")
"""Names in `skimage.data` of colour photographs that its wheel contains."""

FRAMES_PER_SECOND: Final = 8


@attrs.frozen
class DemoMedia:
    """Media files of the demo."""

    video: Path
    photo_jpeg: Path
    photo_png: Path


def make_media(directory: Path, *, side: int = 224, seconds: int = 16) -> DemoMedia:
    """Write one MP4, one JPEG and one PNG.

    Args:
        directory: Folder to create or refill.
        side: Width and height in pixels, even.
        seconds: Length of the video. vLLM shows Qwen2.5-VL two frames of each second.

    Returns:
        Where the files are.
    """
    directory.mkdir(parents=True, exist_ok=True)
    video = directory / "photographs.mp4"
    write_video(video, side=side, frames=seconds * FRAMES_PER_SECOND)
    jpeg = directory / "coffee.jpg"
    png = directory / "chelsea.png"
    jpeg.write_bytes(encode_picture(crop(photograph("coffee"), side, zoom=1.0), ".jpg"))
    png.write_bytes(encode_picture(crop(photograph("chelsea"), side, zoom=1.0), ".png"))
    return DemoMedia(video=video, photo_jpeg=jpeg, photo_png=png)


def photograph(name: str) -> Picture:
    """Load a photograph as `[height, width, 3]`, RGB."""
    from skimage import data

    picture: Picture = getattr(data, name)()
    return picture


def crop(picture: Picture, side: int, *, zoom: float, shift: float = 0.5) -> Picture:
    """Cut a square and scale it.

    Args:
        picture: `[height, width, 3]`.
        side: Width and height of the result in pixels.
        zoom: 1.0 takes the largest square there is, 2.0 one of half its side.
        shift: Where on the longer side, or in the free space, the square lies: 0.0 first, 1.0 last.

    Returns:
        `[side, side, 3]`.
    """
    import cv2

    height, width = picture.shape[:2]
    square = int(min(height, width) / zoom)
    top = int((height - square) * shift)
    left = int((width - square) * shift)
    resized: Any = cv2.resize(
        picture[top : top + square, left : left + square],
        (side, side),
        interpolation=cv2.INTER_AREA,
    )
    scaled: Picture = resized
    return scaled


def encode_picture(picture: Picture, suffix: str) -> bytes:
    """Encode `[height, width, 3]` RGB as `.png` or `.jpg`."""
    import cv2

    done, encoded = cv2.imencode(suffix, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
    if not done:
        raise RuntimeError(f"OpenCV cannot encode {suffix} files; reinstall opencv-python-headless")
    return bytes(encoded)


def write_video(path: Path, *, side: int, frames: int) -> None:
    """Encode an MP4 that moves slowly over each photograph in turn."""
    import cv2

    writer = cv2.VideoWriter(
        str(path),
        cv2.VideoWriter.fourcc(*"mp4v"),
        float(FRAMES_PER_SECOND),
        (side, side),
        isColor=True,
    )
    if not writer.isOpened():
        raise RuntimeError(
            "OpenCV cannot encode MP4 files; reinstall opencv-python-headless, whose wheel can"
        )
    try:
        for frame in _moving_frames(side, frames):
            writer.write(cv2.cvtColor(frame, cv2.COLOR_RGB2BGR))
    finally:
        writer.release()


def _moving_frames(side: int, frames: int) -> Iterator[Picture]:
    pictures = [photograph(name) for name in PHOTOGRAPHS]
    per_picture = -(-frames // len(pictures))
    for number in range(frames):
        progress = (number % per_picture) / per_picture
        yield crop(
            pictures[number // per_picture],
            side,
            zoom=1.0 + 0.5 * progress,
            shift=0.25 + 0.5 * progress,
        )
