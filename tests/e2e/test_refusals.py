"""Servers that must not start, and say why."""

import subprocess
import sys
from pathlib import Path

import pytest

from eccache.app.demo.server import ServerError, free_port
from tests.e2e.servers import Connector, ServerPool, ServerSpec

REPOSITORY = Path(__file__).parents[2]


def test_counted_ids_are_refused(pool: ServerPool, tmp_path: Path) -> None:
    """Ids that start again with each server: refused, with cause, remedy and both flags."""
    spec = ServerSpec(
        connector=Connector(root=tmp_path), arguments=("--mm-processor-cache-gb", "0")
    )
    server, _ = pool.new_server(spec)
    try:
        with pytest.raises(ServerError):
            server.start()
        refusal = [line for line in server.log().splitlines() if "ECC-CONFIG" in line]
    finally:
        server.stop()
    assert refusal
    for words in ("--mm-processor-cache-gb", "--enable-prefix-caching", "Remedy:"):
        assert words in refusal[0]
    assert [] == list(tmp_path.iterdir())


def test_ranks_on_several_hosts_are_refused(pool: ServerPool, tmp_path: Path) -> None:
    """Two ranks, two hosts (both of them this one): both refuse, and name the flags."""
    port = str(free_port())
    spread = (
        *("--nnodes", "2", "--tensor-parallel-size", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", port),
    )
    root = tmp_path / "root"
    spec = ServerSpec(
        connector=Connector(root=root),
        arguments=(*spread, "--node-rank", "0"),
        environment=(("VLLM_CPU_OMP_THREADS_BIND", "0|0"),),
    )
    server, _ = pool.new_server(spec)
    second_log = tmp_path / "second.log"
    arguments = [*server.settings.arguments[: -len(("--node-rank", "0"))], "--node-rank", "1"]
    command = [sys.executable, "-m", "tests.e2e.headless_node", "--model", server.settings.model]
    environment = server.environment() | {"VLLM_CPU_OMP_THREADS_BIND": "0|0"}
    with second_log.open("wb") as log:
        second = subprocess.Popen(
            [*command, "--headless", *arguments],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=REPOSITORY,
        )
    try:
        with pytest.raises(ServerError):
            server.start()
        logs = [server.log(), second_log.read_text()]
    finally:
        server.stop()
        second.terminate()
        second.wait(60)
    for log_text in logs:
        refusal = [line for line in log_text.splitlines() if "ECC-CONFIG" in line]
        assert refusal
        for words in ("2 hosts", "--nnodes 2", "--tensor-parallel-size 2", "Remedy:"):
            assert words in refusal[0]
    assert not root.exists()
