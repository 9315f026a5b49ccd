"""A host-wide, restart-proof, verified cache for the encoder outputs of multimodal models."""

from eccache._version import __version__

__all__ = ["__version__"]
