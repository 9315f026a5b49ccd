"""A store that keeps nothing, for a cache that is switched off."""

from eccache.adapters.disabled.store import DisabledStore

__all__ = ["DisabledStore"]
