"""A server whose accelerator holds seven pictures and whose steps hold 64 tokens, under faults.

So a repeated picture is loaded, not found, and a prompt is computed in pieces.
"""

import concurrent.futures
import itertools
import random
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from eccache.app.demo import media
from eccache.app.demo.client import ChatClient, Medium, Question
from tests.conftest import NIGHTLY
from tests.e2e.entry_files import DAMAGES, entry_files
from tests.e2e.faults import FOLDER_VARIABLE, ROOT_VARIABLE, Faults
from tests.e2e.processes import Holdings, holdings
from tests.e2e.servers import MODEL_NAME, Connector, Served, ServerPool, ServerSpec
from tests.e2e.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
PICTURES = 40
SIDE = 224
ON_ACCELERATOR = 7
"""Pictures of 64 rows in a cache of 448: what one clip of this model may need at the most."""
REQUESTS = 1_000 if NIGHTLY else 200
LONG_TEXT = "Look closely, please, and think before you say anything at all. " * 12


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server stores."""
    return tmp_path_factory.mktemp("small-root")


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    """Switches of faults in the server, all off."""
    return Faults(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def spec(root: Path, faults: Faults) -> ServerSpec:
    """The server."""
    return ServerSpec(
        connector=Connector(root=root, extra=(("lookup_timeout_seconds", 30),)),
        arguments=("--max-num-batched-tokens", "64"),
        environment=((FOLDER_VARIABLE, str(faults.folder)), (ROOT_VARIABLE, str(root))),
        python_path=(str(faults.python_path), str(REPOSITORY)),
    )


@pytest.fixture(scope="module")
def served(pool: ServerPool, spec: ServerSpec) -> Served:
    """The server, running."""
    return pool.get(spec)


@pytest.fixture(scope="module")
def pictures() -> list[Medium]:
    """40 pictures of 64 rows, and two more for a longer prompt."""
    squares = [
        media.crop(media.photograph(name), SIDE, zoom=1 + number / 10)
        for number, name in zip(
            range(PICTURES + 2), itertools.cycle(media.PHOTOGRAPHS), strict=False
        )
    ]
    return [Medium("image/png", media.encode_picture(square, ".png")) for square in squares]


@pytest.fixture(scope="module")
def questions(pictures: list[Medium]) -> list[Question]:
    """One question about each of 40 pictures."""
    return [Question("What is this?", (one,), max_tokens=8) for one in pictures[:PICTURES]]


@pytest.fixture(scope="module")
def long_question(pictures: list[Medium]) -> Question:
    """A prompt of several steps, with pictures that lie across steps."""
    return Question(LONG_TEXT, tuple(pictures[PICTURES:]), text_first=True)


@pytest.fixture(scope="module")
def expected(
    pool: ServerPool, spec: ServerSpec, questions: list[Question], long_question: Question
) -> list[str]:
    """What the same server answers without a connector."""
    plain = pool.get(spec.without_connector())
    answers = plain.answers([*questions, long_question])
    pool.stop(spec.without_connector())
    return answers


@pytest.fixture(scope="module")
def stored(served: Served, questions: list[Question], root: Path, expected: list[str]) -> None:
    """All pictures were asked about once; their entries are there."""
    assert expected[:PICTURES] == served.answers(questions)
    eventually(lambda: PICTURES <= len(entry_files(root)), "entries of all pictures")


@pytest.mark.usefixtures("stored")
def test_a_prompt_in_pieces_is_answered_from_the_cache(
    served: Served, long_question: Question, questions: list[Question], expected: list[str]
) -> None:
    """With 64 tokens a step a prompt spans many; its pictures are loaded, and the answer is right."""
    assert expected[PICTURES] == served.ask(long_question).text
    served.answers(questions[:ON_ACCELERATOR])
    runs, hits = len(served.encoder_runs()), _hits(served)
    assert expected[PICTURES] == served.ask(long_question).text
    assert runs == len(served.encoder_runs())
    assert hits + 2 == _hits(served)


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_file_damaged_between_promise_and_load_changes_nothing(
    served: Served, faults: Faults, questions: list[Question], expected: list[str], kind: str
) -> None:
    """What was promised is a private copy: whatever happens to the file then, the answer is right."""
    number = 10 + list(DAMAGES).index(kind)
    served.answers(questions[:ON_ACCELERATOR])
    runs, damages = len(served.encoder_runs()), len(faults.damaged())
    with faults.files_damaged(kind):
        assert expected[number] == served.ask(questions[number]).text
    assert runs == len(served.encoder_runs())
    assert [kind] == faults.damaged()[damages:]


@pytest.mark.usefixtures("stored")
def test_aborts_while_look_ups_are_pending_leave_nothing(
    served: Served, faults: Faults, questions: list[Question], expected: list[str]
) -> None:
    """Clients that go away while their look-ups hang: no copy, no descriptor, no thread is left."""
    hasty = ChatClient(served.server.url, MODEL_NAME, timeout_seconds=2)
    left: list[Holdings] = []
    for first in (20, 26):  # the first round may start threads that stay, the second may not
        served.answers(questions[:ON_ACCELERATOR])
        deferred = served.metrics().total("vllm:eccache_deferred_total")
        with faults.look_ups_held(), concurrent.futures.ThreadPoolExecutor(6) as clients:
            asked = [clients.submit(hasty.ask, one) for one in questions[first : first + 6]]
            gave_up = [isinstance(one.exception(), openai.APITimeoutError) for one in asked]
        assert [True] * 6 == gave_up
        assert expected[first] == served.ask(questions[first]).text
        assert deferred + 6 <= served.metrics().total("vllm:eccache_deferred_total")
        eventually(lambda: 0 == holdings(served.server.pid).copies, "copies closed")
        left.append(holdings(served.server.pid))
    assert left[0] == left[1]


@pytest.mark.usefixtures("stored")
def test_under_damage_by_another_process_every_answer_is_right(
    served: Served, questions: list[Question], expected: list[str], root: Path
) -> None:
    """Entries are deleted, shortened, flipped in place: the server lives, and serves from the cache."""
    hits, corrupt = _hits(served), served.metrics().total("vllm:eccache_corrupt_total")
    command = [sys.executable, "-m", "tests.e2e.damager", str(root), "7", "0.1"]
    damager = subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        order = random.Random(11).choices(range(PICTURES), k=REQUESTS)
        answers = [served.ask(questions[number]).text for number in order]
    finally:
        damages, _ = damager.communicate()
    assert [expected[number] for number in order] == answers
    assert served.server.is_alive()
    metrics = served.metrics()
    assert 0 == metrics.total("vllm:eccache_broken_promises_total")
    assert int(damages) >= REQUESTS / 10
    assert metrics.total("vllm:eccache_corrupt_total") > corrupt
    assert metrics.total("vllm:eccache_hits_total") - hits >= 0.3 * REQUESTS


def _hits(served: Served) -> float:
    return served.metrics().total("vllm:eccache_hits_total")
