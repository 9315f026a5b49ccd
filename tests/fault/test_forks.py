"""A process forks while its cache is in use by many threads; the child uses it too."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.conftest import NIGHTLY

FORKS = 200 if NIGHTLY else 10

PROGRAM = textwrap.dedent("""
    import os, sys, threading
    import torch
    import eccache

    def opened():
        config = eccache.CacheConfig(local_disk=sys.argv[1], max_local_disk_size=0.1,
            store_timeout_seconds=60.0, close_timeout_seconds=60.0)
        return eccache.open_cache(config, model="m", encoder_dtype="float32")

    cache = opened()
    assert cache.put("before", torch.arange(1000.0)) and cache.flush(60)
    ended = threading.Event()

    def use(seed):
        number = 0
        while not ended.is_set():
            number += 1
            cache.put(f"{seed}/{number % 9}", torch.full((1000,), number))
            cache.get(f"{seed}/{number % 7}")
            cache.stats()

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for fork in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            assert torch.equal(torch.arange(1000.0), cache.get("before"))
            assert cache.put(f"child {fork}", torch.ones(3)) and cache.flush(60)
            assert cache.contains(f"child {fork}")
            assert 1 == cache.stats().stored, cache.stats()
            cache.close()
            sys.stdout.write("child done\\n")
            sys.stdout.flush()
            os._exit(0)
        assert 0 == os.waitpid(child, 0)[1], fork
        assert torch.equal(torch.ones(3), cache.get(f"child {fork}"))
    ended.set()
    for thread in threads:
        thread.join()
    cache.close()
""")


def test_a_forked_process_uses_the_cache_as_if_it_had_opened_it(tmp_path: Path) -> None:
    """Whatever threads held when the process forked, the child reads, stores, flushes and closes."""
    root = str(tmp_path / "root")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, root, str(FORKS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=50 + 5 * FORKS,
    )
    assert (0, "child done\n" * FORKS) == (ran.returncode, ran.stdout), ran.stderr
