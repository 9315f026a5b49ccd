"""vLLM's real requests, with inputs at chosen places and ids."""

from typing import Any

import attrs
import torch
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

TEXT_TOKEN = 7


def digest(number: int) -> str:
    """An id that looks like a content hash."""
    return f"{number:064x}"


@attrs.frozen(kw_only=True)
class Input:
    """An input of a request.

    Attributes:
        id: vLLM's identifier of it.
        rows: Rows of its encoder output.
        offset: Where its placeholder starts.
        length: Prompt tokens of its placeholder; None: as many as rows.
        modality: vLLM's name of the kind.
        fields: Processed data by name; None stands for an input without data.
    """

    id: str
    offset: int
    rows: int = 4
    length: int | None = None
    modality: str = "image"
    fields: dict[str, Any] | None = attrs.field(
        factory=lambda: {
            "pixel_values": torch.zeros(64, 1176),
            "image_grid_thw": torch.tensor([1, 8, 8]),
        }
    )

    def feature(self) -> MultiModalFeatureSpec:
        """Return vLLM's object of it."""
        length = self.rows if self.length is None else self.length
        mask = None
        if length != self.rows:
            mask = torch.zeros(length, dtype=torch.bool)
            mask[: self.rows] = True
        data = None
        if self.fields is not None:
            field = MultiModalBatchedField()
            data = MultiModalKwargsItem(
                {
                    name: MultiModalFieldElem(data=value, field=field)
                    for name, value in self.fields.items()
                }
            )
        return MultiModalFeatureSpec(
            data=data,
            modality=self.modality,
            identifier=self.id,
            mm_position=PlaceholderRange(self.offset, length, mask),
        )


def make_request(
    request_id: str,
    *inputs: Input,
    prompt_tokens: int | None = None,
    max_tokens: int = 2,
    salt: str | None = None,
    params: Any = None,
    block_hasher: Any = None,
) -> Request:
    """A real request of vLLM with these inputs; one token more than they need, unless told otherwise."""
    features = [one.feature() for one in inputs]
    ends = [one.mm_position.offset + one.mm_position.length for one in features]
    count = prompt_tokens or max(ends, default=0) + 1
    sampling = SamplingParams(
        max_tokens=max_tokens,
        ignore_eos=True,
        extra_args=None if params is None else {"ec_transfer_params": params},
    )
    return Request(
        request_id=request_id,
        prompt_token_ids=[TEXT_TOKEN] * count,
        sampling_params=sampling,
        pooling_params=None,
        mm_features=features,
        cache_salt=salt,
        block_hasher=block_hasher,
    )
