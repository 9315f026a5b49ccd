"""One server with the cache, restarted once: right answers, no encoder run that could be avoided."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.entry_files import entry_files
from tests.e2e.servers import Connector, Served, ServerPool, ServerSpec
from tests.e2e.waiting import eventually
from tests.unit.docs.code_on_pages import write_files

LONG_TEXT = "Look closely, please, and think before you say anything at all. " * 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server stores."""
    return tmp_path_factory.mktemp("answers-root")


@pytest.fixture(scope="module")
def spec(root: Path) -> ServerSpec:
    """A server that stores and serves."""
    return ServerSpec(
        connector=Connector(root=root), environment=(("VLLM_LOG_STATS_INTERVAL", "1"),)
    )


@pytest.fixture(scope="module")
def questions(coffee: Medium, cat: Medium, video: Medium) -> list[Question]:
    """Image, video, two images, one image twice, an image after a long text."""
    return [
        Question("What is this?", (coffee,)),
        Question("What happens?", (video,)),
        Question("What differs?", (coffee, cat)),
        Question("Are these equal?", (cat, cat)),
        Question(LONG_TEXT, (cat,), text_first=True),
    ]


@pytest.fixture(scope="module")
def expected(pool: ServerPool, questions: list[Question]) -> list[str]:
    """What a server without any connector answers."""
    return pool.get(ServerSpec()).answers(questions)


@pytest.fixture(scope="module")
def cold(pool: ServerPool, spec: ServerSpec, questions: list[Question]) -> list[str]:
    """What the server answers that has stored nothing yet."""
    return pool.get(spec).answers(questions)


@pytest.fixture(scope="module")
def warm(pool: ServerPool, spec: ServerSpec, cold: list[str], root: Path) -> Served:
    """The same server, started again."""
    assert cold
    assert 3 == len(entry_files(root))
    return pool.restart(spec)


def test_cold_answers_are_those_of_a_server_without_the_cache(
    cold: list[str], expected: list[str]
) -> None:
    """Storing changes no answer."""
    assert expected == cold


def test_warm_answers_are_the_same_and_no_encoder_runs(
    warm: Served, questions: list[Question], expected: list[str]
) -> None:
    """After a restart every kind of prompt is answered from the cache, and nothing is stored again."""
    assert expected == warm.answers(questions)
    assert [] == warm.encoder_runs()
    assert 3 == warm.metrics().total("vllm:eccache_hits_total")
    assert 0 == warm.metrics().total("vllm:eccache_broken_promises_total")
    assert "EC put" not in warm.log()


def test_a_new_input_leaves_its_signals(
    warm: Served, root: Path, new_picture: Callable[[], Medium]
) -> None:
    """A cold request leaves a log line, a file under the documented name, counters, and vLLM's own line."""
    before = set(entry_files(root))
    warm.ask(Question("What is this?", (new_picture(),)))
    warm.ask(
        Question("And this?", (new_picture(),))
    )  # its steps carry the first one's counts along
    eventually(
        lambda: re.search(r"EC Transfer metrics: .*stored=", warm.log()), "vLLM's line of metrics"
    )
    stored = re.findall(r"EC put: stored (\d+) bytes for mm_hash=([0-9a-f]{64})\n", warm.log())
    assert 2 == len(stored)
    made = set(entry_files(root)) - before
    assert {int(nbytes) for nbytes, _ in stored} == {file.stat().st_size - 4096 for file in made}
    assert all(re.search(r"@1@0@[0-9a-f]{1,16}@bfloat16\.safetensors$", file.name) for file in made)
    assert warm.metrics().total("vllm:eccache_stored_total") >= 1


def test_the_first_page_asks_as_it_says(
    warm: Served, new_picture: Callable[[], Medium], tmp_path: Path
) -> None:
    """What a newcomer pastes asks about a picture, and the picture's encoder output is stored."""
    write_files("start.md", tmp_path)
    (tmp_path / "picture.png").write_bytes(new_picture().data)
    runs = len(warm.encoder_runs())
    asked = subprocess.run(
        [sys.executable, "ask.py", warm.server.url, "picture.png"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == asked.returncode, asked.stderr
    assert asked.stdout.strip()
    assert runs + 1 == len(warm.encoder_runs())


def test_a_client_id_is_neither_stored_nor_served(
    warm: Served, root: Path, new_picture: Callable[[], Medium]
) -> None:
    """An id that a client chose says nothing about the content; nothing is kept under it."""
    before = entry_files(root)
    bypassed = warm.metrics().total("vllm:eccache_bypassed_total", reason="client_id")
    picture = attrs.evolve(new_picture(), uuid="my-picture")
    warm.ask(Question("What is this?", (picture,)))
    warm.ask(Question("No picture."))
    assert before == entry_files(root)
    assert bypassed + 1 == warm.metrics().total("vllm:eccache_bypassed_total", reason="client_id")


def test_a_salted_request_is_neither_stored_nor_served(
    warm: Served, root: Path, new_picture: Callable[[], Medium]
) -> None:
    """A request that is isolated by a salt leaves nothing behind, and takes nothing from others."""
    before = entry_files(root)
    salted = Question("What is this?", (new_picture(),), extra={"cache_salt": "tenant"})
    warm.ask(salted)
    warm.ask(Question("No picture."))
    assert before == entry_files(root)
    assert 1 == warm.metrics().total("vllm:eccache_bypassed_total", reason="salted")
