"""Promised copies in sealed, anonymous memory files (Linux)."""

from eccache.adapters.memfd.copies import MemfdCopies, MemfdCopy

__all__ = ["MemfdCopies", "MemfdCopy"]
