"""LMCache's key of an entry.

It is the key that LMCache's own encoder cache uses, `<model>@1@0@<hash>@<dtype>`, with the namespace as a
tag behind it: two revisions of a model never meet under one key, and LMCache's own entries, which are
bare tensors, are never taken for frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmcache.utils import CacheEngineKey

    from eccache.domain.entry_ref import EntryRef

NAMESPACE_TAG: Final = "lmcache.tag.eccache"


def cache_key(ref: EntryRef) -> CacheEngineKey | None:
    """Return LMCache's key of *ref*; None if LMCache has no name for the encoder's dtype."""
    import torch
    from lmcache.utils import CacheEngineKey

    try:
        return CacheEngineKey(
            model_name=ref.key.model_name,
            world_size=ref.key.WORLD_SIZE,
            worker_id=ref.key.WORKER_ID,
            chunk_hash=ref.key.chunk_hash,
            dtype=getattr(torch, ref.key.dtype),
            request_configs={NAMESPACE_TAG: ref.namespace},
        )
    except ValueError:
        return None
