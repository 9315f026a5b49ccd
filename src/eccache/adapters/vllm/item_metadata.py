"""What a producer tells a consumer about the inputs of a request.

A consumer that gets the size of an input's place in the prompt, and loads its encoder output from the
cache, needs no media at all. A proxy between the two replaces media by this description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class ItemDescriber:
    """Describes inputs, with vLLM's own means. Called from the scheduler's thread.

    Args:
        model_config: vLLM's configuration of the model.
    """

    def __init__(self, model_config: Any) -> None:
        self._model_config = model_config
        self._resolver: Any = None

    def metadata_fields(self, modality: str) -> Iterable[str]:
        """Return the names of the fields that only size an input's place; slow at the first call."""
        fields: set[str] = self._sizes().fields_for(modality)
        return fields

    def describe(self, request: Any, may_be_stored: Callable[[str], bool]) -> dict[str, Any] | None:
        """Return for each input of *request*, by id, where it occurs and what sizes its place.

        An input that is not stored is listed without sizes, so that its media stay on the request.

        Args:
            request: vLLM's request.
            may_be_stored: tells by id whether an input is one that this server stores.
        """
        if not request.mm_features:
            return None
        from vllm.distributed.ec_transfer.ec_connector.utils import collect_ec_item_metadata

        items: dict[str, Any] = collect_ec_item_metadata(request.mm_features, self._sizes())
        for identifier, entry in items.items():
            if not may_be_stored(identifier):
                entry["metadata"] = {}
        return items

    def _sizes(self) -> Any:
        if self._resolver is None:
            from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver

            self._resolver = PlaceholderMetadataResolver(self._model_config)
        return self._resolver
