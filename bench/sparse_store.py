"""Stores of very many entries, quickly: each file has a real header and a hole for its payload."""

from __future__ import annotations

import os
import random
from pathlib import Path

from bench.micro.peers import MODEL
from eccache.adapters.disk import Layout
from eccache.domain.entry_format import header_block
from eccache.domain.entry_ref import EntryRef
from eccache.domain.key import EntryKey
from eccache.domain.namespace import Namespace
from eccache.domain.tensor_spec import TensorSpec

HIDDEN = 3584


def fill(
    root: Path,
    entries: int,
    *,
    namespace: Namespace | None = None,
    rows: int = 70,
    modified_seconds: tuple[float, float] | None = None,
    seed: int = 0,
) -> None:
    """Make *entries* files under *root*, where a store would look for them.

    They occupy a block or two each and can't be verified: their digest is missing. What a store does without
    reading an entry costs the same as with real ones.

    Args:
        root: Made if missing.
        entries: How many.
        namespace: Whose; by default that of a cache without further identity.
        rows: Of each tensor, `[rows, 3584]` bfloat16.
        modified_seconds: Range of times of last use, drawn at random; None: now.
        seed: Of names and times.
    """
    rng = random.Random(seed)
    layout = Layout(str(root))
    fingerprint = (namespace or Namespace.from_ingredients({})).fingerprint
    spec = TensorSpec("bfloat16", (rows, HIDDEN))
    digest = bytes(32)
    made: set[str] = set()
    for _ in range(entries):
        ref = EntryRef(fingerprint, EntryKey(MODEL, rng.getrandbits(64), "bfloat16"), digest)
        path = layout.entry(ref)
        directory = path.rpartition("/")[0]
        if directory not in made:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - a million times
            made.add(directory)
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        block = header_block(ref, spec, {})
        os.write(descriptor, block)
        os.ftruncate(descriptor, len(block) + spec.nbytes)
        if modified_seconds is not None:
            seconds = rng.uniform(*modified_seconds)
            os.utime(descriptor, (seconds, seconds))
        os.close(descriptor)
