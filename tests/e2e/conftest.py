"""What the end-to-end tests share: one tiny model, media, and a pool of real servers."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eccache.app.demo import media
from eccache.app.demo.client import Medium
from eccache.app.demo.model import TINY, build_model
from tests.e2e.servers import ServerPool


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a Qwen2.5-VL that starts quickly and whose answers depend on the picture."""
    return build_model(tmp_path_factory.mktemp("model"), TINY).directory


@pytest.fixture(scope="session")
def demo_media(tmp_path_factory: pytest.TempPathFactory) -> media.DemoMedia:
    """A short MP4, a JPEG and a PNG, made from photographs."""
    return media.make_media(tmp_path_factory.mktemp("media"), side=112, seconds=4)


@pytest.fixture(scope="session")
def video(demo_media: media.DemoMedia) -> Medium:
    """A real MP4: 4 seconds, of which vLLM sees 8 frames."""
    return Medium.from_file(demo_media.video)


@pytest.fixture(scope="session")
def coffee(demo_media: media.DemoMedia) -> Medium:
    """A JPEG photograph."""
    return Medium.from_file(demo_media.photo_jpeg)


@pytest.fixture(scope="session")
def cat(demo_media: media.DemoMedia) -> Medium:
    """A PNG photograph."""
    return Medium.from_file(demo_media.photo_png)


@pytest.fixture(scope="session")
def new_picture() -> Callable[[], Medium]:
    """Makes photographs that no server has seen yet: each call gives another one."""
    numbers = itertools.count()

    def make() -> Medium:
        number = next(numbers)
        name = media.PHOTOGRAPHS[number % len(media.PHOTOGRAPHS)]
        square = media.crop(media.photograph(name), 112, zoom=1.2 + number / 100, shift=0.3)
        return Medium("image/png", media.encode_picture(square, ".png"))

    return make


@pytest.fixture(scope="session")
def pool(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """Real vLLM servers of the tiny model, shared by all tests and ended after the last."""
    servers = ServerPool(tiny_model, tmp_path_factory.mktemp("servers"))
    yield servers
    servers.close()
