"""Weights that are replaced in a running server: what can be foreseen, and what can be seen.

Foreseen, from the configuration: vLLM's weight transfer, and a worker extension, which is how trainers
push weights into a server. Such a server may change its weights at any time, without a word.

Seen: when vLLM reloads weights, and before it sleeps, it empties its encoder cache, since outputs of
other weights must not be used. No connector is told. But a worker's connector is given that cache, a
dict, in every step. It leaves a marker in it under a name that no input has; nothing takes the marker
out but emptying the dict, and then it is finalized: at that moment, inside vLLM's call.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def foreseen_replacement(vllm_config: Any) -> str:
    """Return what in the configuration says that weights may be replaced unseen; empty: nothing."""
    if getattr(vllm_config, "weight_transfer_config", None) is not None:
        return "--weight-transfer-config is set"
    if extension := getattr(vllm_config.parallel_config, "worker_extension_cls", ""):
        return f"--worker-extension-cls is {extension}"
    return ""


class ResetWatch(Generic[T]):
    """Sees that vLLM emptied a worker's encoder cache. Used by one thread.

    Args:
        make_marker: makes a value that may lie in the cache, and that can be referred to weakly.
        on_reset: is called when the cache was emptied. Must not raise.
        once: the first time counts for good; else each time, and none changes anything.
    """

    def __init__(
        self, make_marker: Callable[[], T], on_reset: Callable[[], None], *, once: bool = True
    ) -> None:
        self._make_marker = make_marker
        self._on_reset = on_reset
        self._once = once
        self._key = f"eccache-{secrets.token_hex(16)}"
        self._marker: weakref.finalize[[], T] | None = None
        self._happened = False

    @property
    def happened(self) -> bool:
        """Whether the cache was emptied since it was first watched, and that counts for good."""
        return self._happened

    def watch(self, encoder_cache: MutableMapping[str, T]) -> None:
        """Leave the marker in *encoder_cache*, unless it is there. One comparison from then on."""
        if self._marker is None:
            marker = self._make_marker()
            encoder_cache[self._key] = marker
            self._marker = weakref.finalize(marker, self._reset)
            self._marker.atexit = False

    def close(self) -> None:
        """Watch no more. Idempotent."""
        if self._marker is not None:
            self._marker.detach()

    def _reset(self) -> None:
        if self._once:
            self._happened = True
        else:
            self._marker = None  # another one is left in the next step
        self._on_reset()
