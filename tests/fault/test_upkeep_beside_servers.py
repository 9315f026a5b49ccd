"""An operator's commands and servers use one root at once, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from click.testing import CliRunner, Result

from eccache.app.cli import main

WRITERS = 2
PUTS = 150

SERVER = textwrap.dedent("""
    import random, sys
    from eccache.app.bootstrap.stores import open_store
    from eccache.app.config import CacheConfig
    from eccache.app.telemetry import LocalTelemetry
    from eccache.app.verified_read import read_verified
    from eccache.adapters.system import SystemClock
    from eccache.domain.namespace import Namespace
    from eccache.domain.outcomes import LookupOutcome
    from eccache.testing.frames import frame_of, ref_of

    root, seed, puts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    clock = SystemClock()
    namespace = Namespace.from_ingredients({"server": str(seed)})
    config = CacheConfig(local_disk=root, max_local_disk_size=0.004, min_free_space_ratio=0.0)
    store = open_store(config, namespace, clock, LocalTelemetry(clock))
    rng = random.Random(seed)
    for number in range(puts):
        ref = ref_of(f"{seed}-{number}", namespace=namespace)
        store.put(ref, frame_of(ref, number, rows=rng.randrange(1, 800)))
        reading = read_verified(store, ref)
        if reading.outcome not in (LookupOutcome.HIT, LookupOutcome.MISS):
            sys.exit(f"{number}: {reading.outcome}")
    print("done")
""")


def eccache(*arguments: object) -> Result:
    """Run a command as an operator would."""
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_commands_and_servers_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Two servers put, read and evict while every command runs over and over: no fault on either side."""
    root = tmp_path / "ec"
    root.mkdir(mode=0o700)
    (root / "v1").mkdir(mode=0o700)
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", SERVER, str(root), str(seed), str(PUTS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(WRITERS)
    ]
    commands = [
        ["verify", "--repair", "--json"],
        ["ls", "--json"],
        ["gc", "--max-size", "0.003", "--json"],
        ["stat", "--json"],
        ["purge", "--older-than", "0s", "--yes", "--json"],
    ]
    rounds = 0
    while any(server.poll() is None for server in servers):
        for command in commands:
            result = eccache(*command, "--path", root)
            assert 0 == result.exit_code, (command, result.output, result.exception)
        rounds += 1
    for server in servers:
        said, complained = server.communicate()
        assert (0, "done\n") == (server.returncode, said), complained
    assert rounds >= 2
    assert 0 == eccache("verify", "--path", root).exit_code
