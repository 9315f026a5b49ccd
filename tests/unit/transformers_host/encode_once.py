"""A program of its own: encodes the same inputs as its parent, over the cache in a folder.

Prints, as JSON, the digest of what each encoder returned, and what the cache did.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import torch

import eccache
from eccache.app.transformers import cached_encoder
from tests.unit.transformers_host.models import HOSTS, made

NAMES = ("qwen2_5_vl", "qwen3_vl", "siglip", "whisper")


def encoded(folder: str) -> dict[str, Any]:
    """Encode inputs that follow from a seed and say what came of it."""
    config = eccache.CacheConfig(local_disk=folder, max_local_disk_size=1.0)
    found: dict[str, Any] = {}
    with torch.no_grad():
        for name in NAMES:
            host = HOSTS[name]
            model = made(host.make)
            torch.manual_seed(7)
            inputs = host.items(2)
            with cached_encoder(model, config) as encoder:
                digest = hashlib.sha256()
                for tensor in host.value(host.encode(model, **inputs)):
                    digest.update(tensor.contiguous().numpy().data)
            stats = encoder.stats()
            found[name] = [digest.hexdigest(), stats.hits, stats.misses, dict(stats.bypassed)]
    return found


if __name__ == "__main__":
    print(json.dumps(encoded(sys.argv[1])))  # noqa: T201 - its parent reads it
