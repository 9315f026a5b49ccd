"""Two ranks, one cache: an entry is written once, and both ranks load it."""

from pathlib import Path

import pytest

from eccache.app.demo.client import Medium, Question
from tests.e2e.entry_files import entry_files
from tests.e2e.servers import Connector, ServerPool, ServerSpec
from tests.e2e.waiting import eventually


@pytest.fixture
def spec(tmp_path: Path) -> ServerSpec:
    """A server of two ranks."""
    return ServerSpec(connector=Connector(root=tmp_path), tensor_parallel=2)


def test_two_ranks_write_once_and_both_load(
    pool: ServerPool, spec: ServerSpec, tmp_path: Path, coffee: Medium, cat: Medium
) -> None:
    """Cold: both ranks encode, one stores. Warm: both load, none encodes, answers are equal."""
    questions = [Question("What is this?", (coffee,)), Question("What differs?", (coffee, cat))]
    cold = pool.get(spec)
    right = cold.answers(questions)
    eventually(lambda: 2 == cold.log().count("EC put: stored"), "two entries stored")
    cold.ask(Question("No picture."))  # its steps carry the counts along
    assert 2 == len(entry_files(tmp_path))
    assert {0, 1} == {run.rank for run in cold.encoder_runs()}
    assert 2 == cold.metrics().total("vllm:eccache_puts_total")
    warm = pool.restart(spec)
    assert right == warm.answers(questions)
    warm.ask(Question("No picture."))
    metrics = warm.metrics()
    assert [] == warm.encoder_runs()
    assert 2 == metrics.total("vllm:eccache_hits_total")
    assert 2 == metrics.total("vllm:eccache_loads_total")
    assert 0 == metrics.total("vllm:eccache_unacknowledged_total")
    assert 0 == metrics.total("vllm:eccache_puts_total")
    pool.stop(spec)
