"""The model's fingerprint: what must be equal for one process to use another's encoder outputs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping

import attrs
import torch
import transformers

from eccache.adapters.transformers.scope import ModuleSettings, Observation, Scope, observe
from eccache.adapters.transformers.settings import Plain, config_settings
from eccache.adapters.transformers.weights import WeightSamples, weights_digest


@attrs.frozen
class Fingerprint:
    """What an encoder is.

    Attributes:
        ingredients: in words, for an operator.
        device: where its weights are, and so its outputs.
    """

    ingredients: Mapping[str, str]
    device: torch.device

    @property
    def digest(self) -> str:
        """SHA-256 over the ingredients, in hex."""
        return _digest(dict(self.ingredients))


@attrs.frozen
class _Known:
    fingerprint: Fingerprint
    observation: Observation
    config: dict[str, Plain]
    samples: WeightSamples
    sampled: bytes


class FingerprintKeeper:
    """Knows the fingerprint of a scope as it is now. Any thread may call it.

    The digest of the weights is computed when it is first asked for, and again whenever they were changed
    since.

    Args:
        scope: the modules.
        config: the configuration of their owner.
    """

    def __init__(self, scope: Scope, config: object) -> None:
        self._scope = scope
        self._config = config
        self._lock = threading.Lock()
        self._known: _Known | None = None

    def current(self) -> tuple[Fingerprint, Observation]:
        """Return the fingerprint, and the observation that it rests on.

        Raises:
            UncacheableError: the modules are in a state in which no output may be served or stored.
        """
        observation = observe(self._scope)
        config = config_settings(self._config)
        with self._lock:
            known = self._known
            if (
                known is None
                or not known.observation.same_as(observation)
                or known.config != config
                or known.samples.read() != known.sampled
            ):
                known = self._known = self._look_closely(observation, config)
        return known.fingerprint, observation

    def forget(self) -> None:
        """Digest anew at the next call."""
        with self._lock:
            self._known = None

    def _look_closely(self, observation: Observation, config: dict[str, Plain]) -> _Known:
        device = observation.device
        samples = WeightSamples(observation.tensors)
        sampled = samples.read()
        owner = type(self._scope.owner)
        ingredients = {
            "framework": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "encoder of": f"{owner.__module__}.{owner.__qualname__}",
            "config sha256": _digest(config),
            "modules sha256": _digest(sorted(_described(one) for one in observation.modules)),
            "weights sha256": weights_digest(observation.tensors),
            "device": _device_name(device),
        }
        fingerprint = Fingerprint(ingredients, device)
        return _Known(fingerprint, observation, config, samples, sampled)


def _described(settings: ModuleSettings) -> str:
    name, kind, values = settings
    return f"{name}: {kind.__module__}.{kind.__qualname__} {sorted(values)!r}"


def _device_name(device: torch.device) -> str:
    """Return what computes: other devices round otherwise."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
