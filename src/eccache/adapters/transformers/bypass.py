"""Why a call goes to the model as it stands, neither served nor stored."""

from __future__ import annotations

import enum


class Bypass(enum.Enum):
    """A reason. The value names it in statistics, counters and the log."""

    GRADIENT = "gradient"
    """A gradient may flow through the encoder; a stored output has none."""
    TRAINING = "training"
    """A part of the encoder is in training mode, where it may draw random numbers."""
    COMPILED = "compiled"
    """The encoder is compiled, or traced right now: other kernels, other last bits."""
    HOOKS = "hooks"
    """Somebody watches the encoder's modules with hooks, which would not fire on a hit."""
    INTERMEDIATES = "intermediates"
    """Hidden states, attentions or another intermediate value is asked for."""
    POSITIONAL = "positional"
    """The output is asked for as a tuple, in which a place says nothing of what is in it."""
    PATCHED = "patched"
    """Functions of torch were replaced, or code or state of the encoder is such that it can't be told."""
    ADAPTER = "adapter"
    """An adapter (LoRA and its kin) lies in the encoder and can be switched at any time."""
    WEIGHTS = "weights"
    """Weights whose content can't be told: offloaded, sharded, packed, on several devices, or none."""
    ARGUMENTS = "arguments"
    """An argument whose content can't be told."""
    OUTPUT = "output"
    """The encoder returned something that can't be stored and made again."""
    SCOPE = "scope"
    """The encoder was seen to use weights that are no part of its fingerprint."""


class UncacheableError(Exception):
    """A call can't be cached. Never leaves this package.

    Args:
        reason: why, for the statistics.
        cause: why, in words.
        settled: no other call of the same method will fare better.
    """

    def __init__(self, reason: Bypass, cause: str, *, settled: bool = False) -> None:
        super().__init__(cause)
        self.reason = reason
        self.settled = settled
