"""What the demo's client sends, and what it reads from a server's counters."""

from pathlib import Path

import pytest

from eccache.app.demo.client import Medium, Question
from eccache.app.demo.metrics import Metrics

EXPOSITION = """\
# HELP vllm:eccache_hits_total Look-ups that found something.
# TYPE vllm:eccache_hits_total counter
vllm:eccache_hits_total{engine="0",model_name="a model"} 2.0
vllm:eccache_hits_total{engine="1",model_name="a model"} 3.0
process_open_fds 40.0
"""


def test_media_travel_as_data_urls_of_their_kind(tmp_path: Path) -> None:
    """A photograph is an `image_url`, an MP4 a `video_url`, and a client's own id goes beside it."""
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"picture")
    image = Medium.from_file(photo)
    video = Medium("video/mp4", b"clip", uuid="mine")
    message = Question("What?", (image, video)).message()
    assert [
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,cGljdHVyZQ=="}},
        {
            "type": "video_url",
            "video_url": {"url": "data:video/mp4;base64,Y2xpcA=="},
            "uuid": "mine",
        },
        {"type": "text", "text": "What?"},
    ] == message["content"]


def test_the_text_may_come_first() -> None:
    """An image after a long text is another prompt."""
    content = Question("What?", (Medium("image/png", b""),), text_first=True).message()["content"]
    assert ["text", "image_url"] == [part["type"] for part in content]


def test_a_file_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    """The error says which names are known."""
    with pytest.raises(ValueError, match=r"\.mp4"):
        Medium.from_file(tmp_path / "film")


def test_counters_are_summed_over_the_labels_that_are_not_asked_for() -> None:
    """A series that is not there counts 0: a server without a connector has none."""
    metrics = Metrics.parse(EXPOSITION)
    assert 5 == metrics.total("vllm:eccache_hits_total")
    assert 3 == metrics.total("vllm:eccache_hits_total", engine="1")
    assert 40 == metrics.total("process_open_fds")
    assert 0 == metrics.total("vllm:eccache_misses_total")
