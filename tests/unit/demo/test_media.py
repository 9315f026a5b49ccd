"""The demo's media are real files of real photographs."""

from pathlib import Path

import cv2

from eccache.app.demo import media


def test_the_video_plays(tmp_path: Path) -> None:
    """OpenCV, which vLLM decodes with, reads as many frames of the size as were asked for."""
    files = media.make_media(tmp_path, side=64, seconds=2)
    capture = cv2.VideoCapture(str(files.video))
    frames = []
    while (read := capture.read())[0]:
        frames.append(read[1])
    capture.release()
    assert 2 * media.FRAMES_PER_SECOND == len(frames)
    assert (64, 64, 3) == frames[0].shape
    assert 0 < abs(frames[0].astype(int) - frames[-1].astype(int)).mean()


def test_a_lossless_photograph_comes_back_as_it_was(tmp_path: Path) -> None:
    """The colours keep their order."""
    files = media.make_media(tmp_path, side=64, seconds=1)
    stored = cv2.cvtColor(cv2.imread(str(files.photo_png)), cv2.COLOR_BGR2RGB)
    assert (media.crop(media.photograph("chelsea"), 64, zoom=1.0) == stored).all()
