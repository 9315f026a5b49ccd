"""A host-wide, restart-proof, verified cache for the encoder outputs of multimodal models.

The names below are loaded at first use, so that `import eccache` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from eccache._version import __version__

if TYPE_CHECKING:
    from eccache.app.bootstrap import open_cache
    from eccache.app.config import CacheConfig, load_config
    from eccache.app.engine import ECCacheEngine
    from eccache.app.stats import CacheStats
    from eccache.domain.errors import ClosedError, ConfigError, ECCacheError

__all__ = [
    "CacheConfig",
    "CacheStats",
    "ClosedError",
    "ConfigError",
    "ECCacheEngine",
    "ECCacheError",
    "__version__",
    "load_config",
    "open_cache",
]

_HOMES = {
    "CacheConfig": "eccache.app.config",
    "CacheStats": "eccache.app.stats",
    "ClosedError": "eccache.domain.errors",
    "ConfigError": "eccache.domain.errors",
    "ECCacheEngine": "eccache.app.engine",
    "ECCacheError": "eccache.domain.errors",
    "load_config": "eccache.app.config",
    "open_cache": "eccache.app.bootstrap",
}


if not TYPE_CHECKING:  # A type checker would take it to mean that every name exists.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'eccache' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
