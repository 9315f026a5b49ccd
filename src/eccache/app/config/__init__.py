"""Configuration: one frozen value, and where each part of it came from."""

from eccache.app.config.cache_config import CacheConfig

__all__ = ["CacheConfig"]
