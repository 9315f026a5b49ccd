"""Never another input's output: real servers that differ in one thing, on one root.

A server fills the root and ends. Each of the others finds the same inputs stored, for itself or for
somebody else, and must answer as a server without any cache does.
"""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from eccache.app.demo import media
from eccache.app.demo.client import Medium, Question
from eccache.app.demo.model import TINY, build_model
from tests.e2e.entry_files import entry_file_of, entry_files
from tests.e2e.servers import Connector, Served, ServerPool, ServerSpec
from tests.e2e.waiting import eventually

KWARGS = json.dumps({"max_pixels": 12_544})


@attrs.frozen
class Scene:
    """The root, the servers' model, and what was stored under which ids.

    Attributes:
        root: Filled by a server that has ended.
        model: The folder that every server is started on.
        pool: Servers of that folder.
        pictures: Ten photographs; the first four were stored.
        clip: A video; it was stored with 8 frames.
        stored: Ids of the pictures that were stored, by their number.
    """

    root: Path
    model: Path
    pool: ServerPool
    pictures: tuple[Medium, ...]
    clip: Medium
    stored: dict[int, str]

    def spec(self, *arguments: str) -> ServerSpec:
        """The server that filled the root, or one with further arguments."""
        return ServerSpec(
            connector=Connector(root=self.root, extra=(("trust_client_ids", True),)),
            arguments=("--trust-request-mm-kwargs", *arguments),
            environment=(("VLLM_SERVER_DEV_MODE", "1"),),
        )

    def question(self, number: int, uuid: str | None = None) -> Question:
        """A question about one of the pictures."""
        return Question("What is this?", (attrs.evolve(self.pictures[number], uuid=uuid),))


CLIENT_ID = "front-door-camera"
FILL = {0: None, 1: None, 2: CLIENT_ID, 3: None}
"""Pictures that the first server sees, by number, and the id that its client gives."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, demo_media: media.DemoMedia) -> Iterator[Scene]:
    """A root that one server has filled, and nobody uses."""
    folder = tmp_path_factory.mktemp("identity")
    model = build_model(folder / "model", TINY).directory
    pool = ServerPool(model, folder / "servers")
    pictures = [
        media.crop(media.photograph(name), 112, zoom=1.5, shift=shift)
        for name in media.PHOTOGRAPHS
        for shift in (0.1, 0.6)
    ]
    scene = Scene(
        root=folder / "root",
        model=model,
        pool=pool,
        pictures=tuple(
            Medium("image/png", media.encode_picture(picture, ".png")) for picture in pictures
        ),
        clip=Medium.from_file(demo_media.video),
        stored={},
    )
    try:
        _fill(scene)
        yield scene
    finally:
        pool.close()


def _fill(scene: Scene) -> None:
    first = scene.pool.get(scene.spec())
    seen: set[Path] = set()
    for number, uuid in FILL.items():
        first.ask(scene.question(number, uuid))
        seen = _wait_for_one_more(scene.root, seen, scene.stored, number)
    first.ask(Question("What happens?", (scene.clip,)))
    scene.pool.stop(scene.spec())
    assert len(FILL) + 1 == len(entry_files(scene.root))


def _wait_for_one_more(
    root: Path, seen: set[Path], stored: dict[int, str], number: int
) -> set[Path]:
    """Wait until the next entry is there, and note the id that it was stored under."""
    eventually(lambda: len(entry_files(root)) > len(seen), "the entry")
    found = set(entry_files(root))
    (new,) = found - seen
    header = new.read_bytes()[8:4096]
    stored[number] = json.loads(header)["__metadata__"]["mm_hash"]
    return found


def hits(served: Served) -> float:
    """Encoder runs that the cache avoided."""
    return served.metrics().total("vllm:eccache_hits_total")


def test_the_same_server_again_uses_what_is_stored(scene: Scene) -> None:
    """The control: without a difference everything is found, and the answers are right."""
    questions = [scene.question(0), Question("What happens?", (scene.clip,))]
    expected = scene.pool.get(scene.spec().without_connector()).answers(questions)
    again = scene.pool.get(scene.spec())
    assert expected == again.answers(questions)
    assert (2, []) == (hits(again), again.encoder_runs())


def test_a_clients_id_used_again_for_another_picture_runs_the_encoder(scene: Scene) -> None:
    """The operator trusts clients' ids, and a client does not deserve it."""
    (expected,) = scene.pool.get(scene.spec().without_connector()).answers([scene.question(4)])
    served = scene.pool.get(scene.spec())
    before, runs = hits(served), len(served.encoder_runs())
    assert expected == served.ask(scene.question(4, CLIENT_ID)).text
    assert (before, runs + 1) == (hits(served), len(served.encoder_runs()))


def test_a_forged_hash_runs_the_encoder(scene: Scene) -> None:
    """A client gives its picture the id of a picture that was stored: 64 right hex digits."""
    (expected,) = scene.pool.get(scene.spec().without_connector()).answers([scene.question(5)])
    served = scene.pool.get(scene.spec())
    before = hits(served)
    assert expected == served.ask(scene.question(5, scene.stored[3])).text
    assert before == hits(served)


def test_another_number_of_frames_runs_the_encoder(scene: Scene) -> None:
    """A request asks for fewer frames of a clip that was stored with more."""
    frames = {"video": {"num_frames": 4, "video_backend": "opencv"}}  # the model's own goes by time
    fewer = Question("What happens?", (scene.clip,), extra={"media_io_kwargs": frames})
    (expected,) = scene.pool.get(scene.spec().without_connector()).answers([fewer])
    served = scene.pool.get(scene.spec())
    before, runs = hits(served), len(served.encoder_runs())
    assert expected == served.ask(fewer).text
    assert (before, runs + 1) == (hits(served), len(served.encoder_runs()))
    assert 2 == served.encoder_runs()[-1].grids[0][0], "4 frames are 2 pairs"


def test_after_a_reset_of_the_encoder_cache_nothing_is_stored_or_served(scene: Scene) -> None:
    """What vLLM does when weights are replaced; the server goes on, and answers right."""
    questions = [scene.question(1), scene.question(6)]
    expected = scene.pool.get(scene.spec().without_connector()).answers(questions)
    served = scene.pool.get(scene.spec())
    before, files = hits(served), entry_files(scene.root)
    url = f"{served.server.url}/reset_encoder_cache"
    post = urllib.request.Request(url, method="POST")  # noqa: S310 - our own server
    with urllib.request.urlopen(post, timeout=60) as reply:  # noqa: S310 - our own server
        assert 200 == reply.status
    assert expected == served.answers(questions)
    assert before == hits(served)
    assert files == entry_files(scene.root)
    assert 2 == served.metrics().total("vllm:eccache_bypassed_total", reason="weights")
    assert "vllm.weights.replaced" in served.log()


OTHER_SERVERS = {
    "another dtype": ("--dtype", "float32"),
    "other processor arguments": ("--mm-processor-kwargs", KWARGS),
}


@pytest.mark.parametrize("arguments", OTHER_SERVERS.values(), ids=OTHER_SERVERS)
def test_a_server_that_differs_finds_nothing(scene: Scene, arguments: tuple[str, str]) -> None:
    """It encodes, answers as without a cache, and stores for itself."""
    spec = scene.spec(*arguments)
    (expected,) = scene.pool.get(spec.without_connector()).answers([scene.question(0)])
    before = len(entry_files(scene.root))
    other = scene.pool.get(spec)
    assert expected == other.ask(scene.question(0)).text
    assert (0, 1) == (hits(other), len(other.encoder_runs()))
    scene.pool.stop(spec)
    assert before + 1 == len(entry_files(scene.root))


def test_other_weights_under_the_same_path_find_nothing(scene: Scene, tmp_path: Path) -> None:
    """The model was trained on and put back in its place; ids are the same, for ids hold the path."""
    scene.pool.close()
    trained = build_model(tmp_path / "trained", attrs.evolve(TINY, seed=7)).directory
    shutil.copy(trained / "model.safetensors", scene.model / "model.safetensors")
    (expected,) = scene.pool.get(scene.spec().without_connector()).answers([scene.question(0)])
    served = scene.pool.get(scene.spec())
    assert expected == served.ask(scene.question(0)).text
    assert (0, 1) == (hits(served), len(served.encoder_runs()))
    first = entry_file_of(scene.root, scene.stored[0])
    assert first is not None
    scene.pool.stop(scene.spec())
    names = {path.name for path in entry_files(scene.root)}
    assert len(names) < len(entry_files(scene.root)), "one name, two namespaces"
