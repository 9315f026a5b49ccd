"""Stand-ins for vLLM's two model runners: the same calls on the connector in the same order.

What they leave out is the model. An encoder output is a tensor that its id determines, so a gather can
tell whether it got what the encoder would have made. And they keep an input's data where vLLM drops it
because the prefix cache covers the input: its first runner then dies, with or without a connector, if
such a request is preempted and its blocks are gone. The order of calls is that of vLLM 0.32:

* First runner (`gpu_model_runner.py`, `ec_connector_model_runner_mixin.py`): drop what left the
  accelerator; in a step without tokens nothing more. Else bind, `start_save_caches` if producer,
  `start_load_caches` if consumer, run the encoder for every scheduled input (also for one that is
  there) with `save_caches` after each, whatever the role, gather, `get_finished`,
  `build_connector_worker_meta`, clear. A producer alone does this without gathering, and drops the
  report.
* Second runner (`gpu/ec_connector.py`, `gpu/mm/encoder_runner.py`): the same in every step, also
  without tokens. The encoder is skipped for what is there; `save_caches` comes after the gather, for
  new keys only, in the order of a set, and only if producer; `get_ec_connector_stats` before the report.
"""

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch
from vllm.multimodal.utils import get_mm_features_in_window
from vllm.v1.outputs import ECConnectorOutput, ModelRunnerOutput

WIDTH = 8


class EncoderCacheMissError(RuntimeError):
    """What kills a real engine."""


def encoder_output(mm_hash: str, rows: int) -> torch.Tensor:
    """What the encoder makes of an input."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{mm_hash}/{rows}".encode()))
    return torch.randn(rows, WIDTH, generator=generator, dtype=torch.float32).bfloat16()


@attrs.define
class _Live:
    """What a runner remembers of a request."""

    features: list[Any]
    computed: int


def _inputs(keys: set[str]) -> list[str]:
    """Return what of an encoder cache's keys are inputs: the worker's marker is none."""
    return sorted(key for key in keys if not key.startswith("eccache-"))


class FirstRunner:
    """The runner that vLLM calls V1.

    Args:
        connector: The connector of this worker.

    Attributes:
        encoder_cache: The accelerator's encoder outputs, by id.
        encoded: Ids in the order in which the encoder ran for them.
        loaded: Ids that were there without the encoder having run for them in that step.
        whole_features: Finds the inputs of a request with all of their data.
    """

    def __init__(self, connector: Any) -> None:
        self.connector = connector
        self.encoder_cache: dict[str, torch.Tensor] = {}
        self.encoded: list[str] = []
        self.loaded: list[str] = []
        self.whole_features: Callable[[str], list[Any]] = lambda _request_id: []
        self._live: dict[str, _Live] = {}

    def execute(self, step: Any) -> ModelRunnerOutput:
        """Carry out one step of the scheduler."""
        self._update(step)
        if not step.total_num_scheduled_tokens:
            return ModelRunnerOutput(req_ids=[], req_id_to_index={})
        output = ECConnectorOutput()
        self._start(step)
        before = set(self.encoder_cache)
        for feature in self._scheduled(step):
            self._encode(feature)
            self.connector.save_caches(encoder_cache=self.encoder_cache, mm_hash=feature.identifier)
        if self.connector.is_consumer:
            self._gather(step)
        self.loaded += _inputs(before - self._before_load)
        self._finish(step, output)
        if not self.connector.is_consumer:
            output = ECConnectorOutput()  # dropped, as the real one does
        return self._output(step, output)

    def _start(self, step: Any) -> None:
        self._before_load = set(self.encoder_cache)
        self.connector.bind_connector_metadata(step.ec_connector_metadata)
        if self.connector.is_producer:
            self.connector.start_save_caches(encoder_cache=self.encoder_cache)
        if self.connector.is_consumer:
            self.connector.start_load_caches(self.encoder_cache)

    def _finish(self, step: Any, output: ECConnectorOutput) -> None:
        finished = self.connector.get_finished(step.finished_req_ids)
        output.finished_sending, output.finished_recving = finished
        output.ec_connector_worker_meta = self.connector.build_connector_worker_meta()
        self.connector.clear_connector_metadata()

    def _update(self, step: Any) -> None:
        """Take over requests, forget finished ones, drop what left the accelerator."""
        for request_id in step.finished_req_ids:
            self._live.pop(request_id, None)
        for mm_hash in step.free_encoder_mm_hashes:
            self.encoder_cache.pop(mm_hash, None)
        for new in step.scheduled_new_reqs:
            features = self.whole_features(new.req_id) or new.mm_features
            self._live[new.req_id] = _Live(features, new.num_computed_tokens)
        cached = step.scheduled_cached_reqs
        for request_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            self._live[request_id].computed = computed

    def _scheduled(self, step: Any) -> Iterator[Any]:
        for request_id, indices in step.scheduled_encoder_inputs.items():
            for index in indices:
                yield self._live[request_id].features[index]

    def _encode(self, feature: Any) -> None:
        if feature.data is None or not any(name.startswith("pixel") for name in feature.data):
            raise EncoderCacheMissError(f"no pixels for {feature.identifier}")
        rows = feature.mm_position.get_num_embeds()
        self.encoded.append(feature.identifier)
        self.encoder_cache[feature.identifier] = encoder_output(feature.identifier, rows)

    def _gather(self, step: Any) -> None:
        """Take every embedding that the step needs, and check it against the encoder."""
        for request_id, count in step.num_scheduled_tokens.items():
            live = self._live[request_id]
            start, end = live.computed, live.computed + count
            low, high = get_mm_features_in_window(live.features, start=start, end=end)
            for feature in live.features[low:high]:
                position = feature.mm_position
                first = max(start - position.offset, 0)
                last = min(end - position.offset, position.length)
                wanted = position.get_embeds_indices_in_range(first, last)
                if wanted[0] == wanted[1]:
                    continue
                found = self.encoder_cache.get(feature.identifier)
                if found is None:
                    raise EncoderCacheMissError(feature.identifier)
                rows = position.get_num_embeds()
                right = encoder_output(feature.identifier, rows)
                if not torch.equal(right, found):
                    raise EncoderCacheMissError(f"wrong rows for {feature.identifier}")

    def _output(self, step: Any, output: ECConnectorOutput) -> ModelRunnerOutput:
        request_ids = list(step.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={request_id: n for n, request_id in enumerate(request_ids)},
            sampled_token_ids=[[] for _ in request_ids],
            ec_connector_output=None if output.is_empty() else output,
        )


class SecondRunner(FirstRunner):
    """The runner that vLLM calls V2."""

    def execute(self, step: Any) -> ModelRunnerOutput:
        """Carry out one step, also one without tokens."""
        self._update(step)
        output = ECConnectorOutput()
        self._start(step)
        cached = set(self.encoder_cache) if self.connector.is_producer else None
        loaded = set(self.encoder_cache) - self._before_load
        for feature in self._scheduled(step):
            if feature.identifier not in self.encoder_cache:
                self._encode(feature)
        if self.connector.is_consumer:
            self._gather(step)
        self.loaded += _inputs(loaded)
        if cached is not None:
            for mm_hash in self.encoder_cache.keys() - cached:
                self.connector.save_caches(encoder_cache=self.encoder_cache, mm_hash=mm_hash)
        output.ec_connector_stats = self.connector.get_ec_connector_stats()
        self._finish(step, output)
        return self._output(step, output)
