"""A server that encodes and one that answers, on one root: the second one never encodes."""

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.entry_files import entry_files
from tests.e2e.servers import MODEL_NAME, Connector, Served, ServerPool, ServerSpec


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both servers share."""
    return tmp_path_factory.mktemp("shared-root")


@pytest.fixture(scope="module")
def expected(pool: ServerPool, coffee: Medium, cat: Medium) -> list[str]:
    """What a server without any connector answers."""
    return pool.get(ServerSpec()).answers(
        [Question("What is this?", (coffee,)), Question("What differs?", (coffee, cat))]
    )


@pytest.fixture(scope="module")
def servers(pool: ServerPool, root: Path, expected: list[str]) -> Iterator[tuple[Served, Served]]:
    """The producer and the consumer, both running; the reference server has answered before."""
    assert all(expected)
    producer = ServerSpec(connector=Connector(root=root, role="ec_producer"))
    consumer = ServerSpec(connector=Connector(root=root, role="ec_consumer"))
    yield pool.get(producer), pool.get(consumer)
    pool.stop(producer)
    pool.stop(consumer)


def transfer_params(producer: Served, question: Question) -> dict[str, Any]:
    """What the producer says of the inputs of a question, after it has encoded them."""
    params: dict[str, Any] = producer.client.complete(attrs.evolve(question, max_tokens=1))[
        "ec_transfer_params"
    ]
    return params


def test_the_consumer_never_encodes_what_the_producer_stored(
    servers: tuple[Served, Served], root: Path, expected: list[str], coffee: Medium, cat: Medium
) -> None:
    """The producer stores and names its inputs; the consumer waits for them, loads and answers."""
    producer, consumer = servers
    questions = [Question("What is this?", (coffee,)), Question("What differs?", (coffee, cat))]
    answers = []
    for question in questions:
        params = transfer_params(producer, question)
        assert all(entry["metadata"]["image_grid_thw"] for entry in params.values())
        named = attrs.evolve(question, extra={"ec_transfer_params": params})
        answers.append(consumer.ask(named).text)
    assert expected == answers
    assert 2 == len(producer.encoder_runs())
    assert [] == consumer.encoder_runs()
    assert 2 == len(entry_files(root))
    assert 2 == consumer.metrics().total("vllm:eccache_hits_total")


def test_the_consumer_stores_nothing(
    servers: tuple[Served, Served], root: Path, new_picture: Callable[[], Medium]
) -> None:
    """An input that nobody stored is encoded by the consumer, and not stored."""
    _, consumer = servers
    before, runs = entry_files(root), len(consumer.encoder_runs())
    consumer.ask(Question("What is this?", (new_picture(),)))
    assert before == entry_files(root)
    assert runs + 1 == len(consumer.encoder_runs())
    assert 0 == consumer.metrics().total("vllm:eccache_puts_total")


def test_a_request_without_media_is_answered(
    servers: tuple[Served, Served], expected: list[str], coffee: Medium
) -> None:
    """As a proxy between the two does it: one id, encoded here; there only the id and the grid."""
    producer, consumer = servers
    named = attrs.evolve(coffee, uuid=hashlib.sha256(b"https://example.org/coffee").hexdigest())
    ((mm_hash, entry),) = transfer_params(producer, Question("?", (named,))).items()
    assert named.uuid == mm_hash
    assert 2 <= producer.metrics().total("vllm:eccache_stored_total")  # with its third request
    status, reply = ask_without_media(consumer, mm_hash, entry)
    assert (200, expected[0]) == (status, reply)
    assert [] == consumer.encoder_runs()[1:]


def test_a_request_without_media_that_nobody_encoded_fails_alone(
    servers: tuple[Served, Served], expected: list[str], coffee: Medium
) -> None:
    """Nothing can supply it: an error that a proxy retries, soon; the server lives and serves others."""
    _, consumer = servers
    unknown = hashlib.sha256(b"never encoded").hexdigest()
    grid = {"metadata": {"image_grid_thw": [1, 8, 8]}, "item_indices": [0]}
    status, _ = ask_without_media(consumer, unknown, grid)
    assert 500 == status
    assert consumer.server.is_alive()
    assert expected[0] == consumer.ask(Question("What is this?", (coffee,))).text
    assert 1 == consumer.metrics().total("vllm:eccache_unavailable_total")


def ask_without_media(consumer: Served, mm_hash: str, entry: dict[str, Any]) -> tuple[int, str]:
    """Ask what is on a picture of which only id and grid are sent; HTTP status and answer."""
    picture = {"type": "image_embeds", "image_embeds": entry["metadata"], "uuid": mm_hash}
    text = {"type": "text", "text": "What is this?"}
    body = {
        "model": MODEL_NAME,
        "messages": [{"role": "user", "content": [picture, text]}],
        "temperature": 0,
        "max_tokens": 16,
        "ec_transfer_params": {mm_hash: entry},
    }
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{consumer.server.url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - the same
            answer = json.load(reply)["choices"][0]["message"]["content"]
            return reply.status, answer
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
