"""A model with cached encoders: what a caller holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Self

import attrs
import torch

from eccache.adapters.transformers.cached_call import CachedCall, CallParts, Guard
from eccache.adapters.transformers.fingerprint import Fingerprint, FingerprintKeeper
from eccache.adapters.transformers.seam import find_seams
from eccache.adapters.transformers.statistics import EncoderStats, Statistics
from eccache.domain.errors import ConfigError
from eccache.ports.telemetry import Telemetry
from eccache.ports.tensor_cache import TensorCache


@attrs.frozen(kw_only=True)
class EncoderParts:
    """What the composition hands in.

    Attributes:
        cache: holds the outputs.
        close: gives the cache back, if it is to be given back.
        telemetry: takes counts and events.
        guard: turns a fault of the cache into a miss.
    """

    cache: TensorCache[torch.Tensor]
    close: Callable[[], None]
    telemetry: Telemetry
    guard: Guard


class CachedEncoder:
    """The encoders of one model answer from the cache until this is closed. A context manager.

    Any thread may use the model meanwhile.

    Args:
        model: a `PreTrainedModel`, which is changed in place: its methods are replaced on the object.
        parts: what to work with.
        towers: names of modules to be cached instead of the model's `get_<modality>_features`.
        per_item: whether calls are divided into items where that is known to be right.
        every_field: whether fields of outputs that only a caller's own code would read are kept too.

    Raises:
        ConfigError: nothing in the model can be cached, or something is already.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parts: EncoderParts,
        *,
        towers: Iterable[str] = (),
        per_item: bool = True,
        every_field: bool = False,
    ) -> None:
        model = getattr(model, "_orig_mod", model)  # what torch.compile() wrapped
        self._statistics = Statistics(parts.telemetry)
        self._close = parts.close
        call_parts = CallParts(
            cache=parts.cache,
            statistics=self._statistics,
            guard=parts.guard,
            per_item=per_item,
            every_field=every_field,
        )
        self._keepers: dict[int, FingerprintKeeper] = {}
        self._calls: list[CachedCall] = []
        seams = find_seams(model, towers)
        for seam in seams:
            entries = [one.attribute for one in seams if one.owner is seam.owner]
            keeper = self._keepers.setdefault(
                id(seam.owner), FingerprintKeeper(seam.scope, seam.config, entries)
            )
            self._calls.append(CachedCall(seam, model, keeper, call_parts))
        if any(call.occupied for call in self._calls):
            raise ConfigError(
                f"the encoder of this {type(model).__name__} is cached already",
                remedy="close the CachedEncoder that does it first",
            )
        for call in self._calls:
            call.install()

    @property
    def methods(self) -> Mapping[str, str]:
        """The modality of what each cached method encodes, by the method's full name."""
        return {call.seam.name: call.seam.modality for call in self._calls}

    def fingerprints(self) -> list[Fingerprint]:
        """Return what has to be equal for another process to be served these entries.

        Computes the digest of the weights if that is not known yet.

        Raises:
            UncacheableError: the model is in a state in which nothing is cached, e.g. in training mode.
        """
        return [keeper.current()[0] for keeper in self._keepers.values()]

    def refresh(self) -> None:
        """Digest the weights anew at the next call.

        Needed only after a change to few elements that torch did not count: one made through
        `tensor.data`, or through another library's view of the memory.
        """
        for keeper in self._keepers.values():
            keeper.forget()

    def stats(self) -> EncoderStats:
        """Return what was served, computed and bypassed."""
        return self._statistics.snapshot()

    def close(self) -> None:
        """Give the model its own methods back, and the cache if it was opened for this. Idempotent.

        Waits for accepted puts where it closes the cache.
        """
        for call in self._calls:
            call.restore()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
