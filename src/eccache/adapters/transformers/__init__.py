"""Hugging Face transformers as the host: the encoders of a model answer from the cache."""

from eccache.adapters.transformers.bypass import Bypass
from eccache.adapters.transformers.encoder import CachedEncoder
from eccache.adapters.transformers.fingerprint import Fingerprint
from eccache.adapters.transformers.statistics import EncoderStats

__all__ = ["Bypass", "CachedEncoder", "EncoderStats", "Fingerprint"]
