"""Ranks find each other, and nobody else, with real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import attrs
import pytest

from eccache.adapters.vllm import reachability
from eccache.adapters.vllm.ranks import Rank, acknowledging_ranks, all_ranks
from eccache.adapters.vllm.reachability import Beacon, prove_reachable
from eccache.domain.errors import ConfigError

TOKEN = f"test-{os.getpid()}"
WORKER = """
import sys
from eccache.adapters.vllm.ranks import Rank
from eccache.adapters.vllm.reachability import Beacon
beacon = Beacon(sys.argv[1], Rank(tensor=int(sys.argv[2])))
print("up", flush=True)
sys.stdin.read()
"""


@attrs.frozen
class Parallel:
    """The sizes that vLLM's parallel configuration has."""

    pipeline_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    tensor_parallel_size: int = 1


@pytest.fixture
def beacon() -> Iterator[Beacon]:
    """A worker in this very process, as in a single-process engine."""
    beacon = Beacon(TOKEN, Rank())
    yield beacon
    beacon.close()


def start_worker(rank: int) -> subprocess.Popen[str]:
    """A worker in a process of its own, once it is up."""
    command = [sys.executable, "-c", WORKER, TOKEN, str(rank)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert "up\n" == worker.stdout.readline()
    return worker


def end(worker: subprocess.Popen[str]) -> None:
    """End a worker."""
    worker.communicate()


@pytest.mark.usefixtures("beacon")
def test_ranks_in_this_process_and_in_others_are_found() -> None:
    """A worker of the same process and one of another process can both reach the scheduler."""
    worker = start_worker(1)
    try:
        prove_reachable(TOKEN, [Rank(), Rank(tensor=1)])
        prove_reachable(TOKEN, [Rank(), Rank(tensor=1)])  # and it can be asked again
    finally:
        end(worker)


@pytest.mark.usefixtures("beacon")
def test_a_rank_that_is_not_here_is_refused() -> None:
    """A rank on another host, or in another network namespace, has no socket here."""
    with pytest.raises(ConfigError, match=r"Rank\(pipeline=0, context=0, tensor=1\).*--nnodes 1"):
        prove_reachable(TOKEN, [Rank(), Rank(tensor=1)])


def test_a_rank_that_has_ended_is_refused() -> None:
    """Nothing of a worker is left behind that could be taken for it."""
    end(start_worker(1))
    with pytest.raises(ConfigError, match="found no worker"):
        prove_reachable(TOKEN, [Rank(tensor=1)])


@pytest.mark.usefixtures("beacon")
def test_a_rank_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's worker may not open this process's memory; the kernel says whose it is."""
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(ConfigError, match=f"runs under uid {own}, the scheduler under {own + 1}"):
        prove_reachable(TOKEN, [Rank()])


def test_a_rank_in_another_pid_namespace_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose process number means nothing here can't be told one either."""
    assert not reachability._shares_pid_namespace(0)  # noqa: SLF001 - what the kernel says of one
    worker = start_worker(1)
    try:
        monkeypatch.setattr(reachability, "_shares_pid_namespace", lambda _pid: False)
        with pytest.raises(ConfigError, match="another pid namespace"):
            prove_reachable(TOKEN, [Rank(tensor=1)])
    finally:
        end(worker)


@pytest.mark.usefixtures("beacon")
def test_a_rank_can_be_taken_only_once() -> None:
    """Two workers of one rank would be two engines under one name."""
    with pytest.raises(ConfigError, match="could not announce itself"):
        Beacon(TOKEN, Rank())


def test_a_closed_beacon_is_gone() -> None:
    """Closing frees the name; closing twice is harmless."""
    beacon = Beacon(TOKEN, Rank())
    beacon.close()
    beacon.close()
    Beacon(TOKEN, Rank()).close()


def test_every_rank_is_counted() -> None:
    """All ranks are looked for; those of the first pipeline stage acknowledge."""
    ranks = list(all_ranks(Parallel(2, 2, 3)))
    assert 12 == len(ranks) == len(set(ranks))
    assert 6 == acknowledging_ranks(Parallel(2, 2, 3))
    assert [Rank()] == [rank for rank in ranks if rank.is_primary]
    assert [Rank()] == list(all_ranks(Parallel()))
