"""What a process pays for having the cache at all: memory, and time to import."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.rows import Row
from bench.setting import Setting
from bench.torchvision import cured_environment

RESIDENT_NBYTES = 30 << 20
IMPORT_SECONDS = 0.150

_RESIDENT = """
import json, sys, psutil, torch
torch.set_num_threads(1)
import vllm.distributed.ec_transfer.ec_connector.base
process = psutil.Process()
def resident():
    return process.memory_info().rss
begin = resident()
"""
_OURS = """
import eccache
from eccache.app.vllm import wiring
config = eccache.CacheConfig(local_disk=sys.argv[1], min_free_space_ratio=0.0)
cache = eccache.open_cache(config, model="m", encoder_dtype="bfloat16")
tensor = torch.ones([70, 3584], dtype=torch.bfloat16)
cache.put("id", tensor); cache.flush(); assert cache.get("id") is not None
del tensor
print(json.dumps(resident() - begin))
"""
_LMCACHE = """
from pathlib import Path
from bench.micro.peers import lmcache_engine
with lmcache_engine(1.0, Path(sys.argv[1])) as cache:
    tensor = torch.ones([70, 3584], dtype=torch.bfloat16)
    cache.put("id", tensor); assert cache.get("id", "cpu") is not None
    del tensor
    print(json.dumps(resident() - begin))
"""
_IMPORT = """
import json, sys, time
begin = time.perf_counter()
import vllm.distributed.ec_transfer.ec_connector.base
import vllm.v1.core.sched.scheduler
between = time.perf_counter()
import eccache.app.vllm
eccache.app.vllm.ECCacheConnector
connector = time.perf_counter()
from eccache.app.vllm import wiring
end = time.perf_counter()
print(json.dumps([between - begin, connector - between, end - between]))
"""


def rows(setting: Setting) -> Iterator[Row]:
    """Measure in processes of their own."""
    ours = [_run(_RESIDENT + _OURS, str(setting.folder / "rss")) for _ in range(setting.rounds(5))]
    theirs = [
        _run(_RESIDENT + _LMCACHE, str(setting.folder / "rss-lmcache"))
        for _ in range(setting.rounds(2))
    ]
    yield Row(
        operation="memory added to a process",
        size="idle, after a put and a get",
        target="<= 30 MiB",
        measured=statistics.median(ours),
        peer="LMCache, 1 GiB",
        peer_measured=statistics.median(theirs),
        ratio=statistics.median(ours) / statistics.median(theirs),
        met=statistics.median(ours) <= RESIDENT_NBYTES,
        used=statistics.median(ours) / RESIDENT_NBYTES,
        unit="B",
    )
    imports = [_run(_IMPORT) for _ in range(setting.rounds(7))]
    vllm, connector, wiring = (statistics.median(times) for times in zip(*imports, strict=True))
    yield Row(
        operation="import of the connector module, over vLLM's own",
        target="<= 150 ms",
        measured=connector,
        peer="vLLM's scheduler and EC base",
        peer_measured=vllm,
        ratio=connector / vllm,
        met=connector <= IMPORT_SECONDS,
        used=connector / IMPORT_SECONDS,
    )
    yield Row(
        operation="import of all that an engine's process needs",
        measured=wiring,
        peer="vLLM's scheduler and EC base",
        peer_measured=vllm,
        ratio=wiring / vllm,
    )


def _run(program: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=cured_environment(),
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])
