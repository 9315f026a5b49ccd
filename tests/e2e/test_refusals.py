"""Servers that must not start, and say why."""

from pathlib import Path

import pytest

from eccache.app.demo.server import ServerError
from tests.e2e.servers import Connector, ServerPool, ServerSpec


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
