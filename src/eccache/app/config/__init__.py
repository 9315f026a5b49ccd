"""Configuration: one frozen value, and where each part of it came from."""

from eccache.app.config.cache_config import CacheConfig
from eccache.app.config.loading import LoadedConfig, load_config, load_config_with_sources
from eccache.app.config.report import Report

__all__ = ["CacheConfig", "LoadedConfig", "Report", "load_config", "load_config_with_sources"]
