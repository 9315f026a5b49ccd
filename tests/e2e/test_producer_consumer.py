"""A server that encodes and one that answers, on one root: the second one never encodes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.entry_files import entry_files
from tests.e2e.servers import Connector, Served, ServerPool, ServerSpec


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
