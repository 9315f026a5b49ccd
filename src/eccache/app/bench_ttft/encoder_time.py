"""How long vLLM's encoder took: vLLM's own count, which it tells on its developer's interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final = {"VLLM_SERVER_DEV_MODE": "1"}
"""Opens that interface; the server is on loopback and lives as long as the measurement."""
PLUGIN: Final = Path(__file__).parent / "encoder_stats_plugin.py"
_TIMEOUT_SECONDS: Final = 60.0


def take_encoder_seconds(url: str) -> float | None:
    """Return what the encoder took since the last call, in the slowest rank; None where vLLM won't tell.

    Args:
        url: Address of the server, without a path.
    """
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/collective_rpc",
        data=json.dumps({"method": "get_encoder_timing_stats"}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as reply:  # noqa: S310
            body = json.loads(reply.read())
    except (urllib.error.URLError, TimeoutError, ValueError):
        return None
    return slowest_rank_seconds(body)


def slowest_rank_seconds(body: Any) -> float | None:  # noqa: ANN401 - JSON of many vLLM versions
    """Return the encoder's seconds in the slowest rank, from what the server replied."""
    ranks = body.get("results") if isinstance(body, dict) else None
    if not isinstance(ranks, list):
        return None
    totals = [
        sum(float(request.get("encoder_forward_secs", 0.0)) for request in rank.values())
        for rank in ranks
        if isinstance(rank, dict)
    ]
    return max(totals, default=None)
