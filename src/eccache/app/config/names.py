"""The names of the settings, and which of them a slip may have meant."""

from __future__ import annotations

import difflib
from typing import Final

import attrs

from eccache.app.config.cache_config import CacheConfig
from eccache.app.config.lmcache_keys import TIER_KEYS

FIELDS: Final = tuple(field.name for field in attrs.fields(CacheConfig))
LMCACHE_MAP: Final = "lmcache"
"""The setting that holds LMCache's own keys."""


def nearest_setting(key: str) -> str | None:
    """Return the setting whose name is nearest to *key*; None where none is near."""
    near = difflib.get_close_matches(key.lower(), [*FIELDS, *sorted(TIER_KEYS)], n=1)
    return near[0] if near else None
