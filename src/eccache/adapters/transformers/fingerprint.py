"""The model's fingerprint: what must be equal for one process to use another's encoder outputs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs
import torch
import transformers

from eccache.adapters.transformers.bypass import UncacheableError
from eccache.adapters.transformers.code_survey import CodeSurvey, ScopeCode
from eccache.adapters.transformers.scope import ModuleSettings, Observation, Scope, observe
from eccache.adapters.transformers.settings import Plain, config_settings
from eccache.adapters.transformers.weights import WeightSamples, weights_digest

_CODE: Final = "code sha256"


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

    def with_code(self, digest: str) -> _Known:
        """Return the same with other code."""
        ingredients = {**self.fingerprint.ingredients, _CODE: digest}
        return attrs.evolve(
            self, fingerprint=attrs.evolve(self.fingerprint, ingredients=ingredients)
        )

    def matches(self, observation: Observation, config: dict[str, Plain]) -> bool:
        """Return whether weights, modules and configuration are the same still."""
        return (
            self.observation.same_as(observation)
            and self.config == config
            and self.samples.read() == self.sampled
        )


@attrs.frozen
class _KnownCode:
    """A survey, and what it was made for."""

    survey: CodeSurvey
    observation: Observation
    config: dict[str, Plain]

    def matches(self, observation: Observation, config: dict[str, Plain]) -> bool:
        """Return whether the same code would be found again."""
        return (
            self.observation.code == observation.code
            and self.config == config
            and self.survey.places.are_unchanged()
        )


class FingerprintKeeper:
    """Knows the fingerprint of a scope as it is now. Any thread may call it.

    The digests of weights and code are computed when they are first asked for, and again whenever something
    was changed since.

    Args:
        scope: the modules.
        config: the configuration of their owner.
        entries: the methods of the owner by which the encoder is entered.
    """

    def __init__(self, scope: Scope, config: object, entries: Iterable[str]) -> None:
        self._scope = scope
        self._config = config
        self._entries = frozenset(entries)
        self._code: _KnownCode | None = None
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
            code = self._code_digest(observation, config)
            known = self._known
            if known is None or not known.matches(observation, config):
                known = self._known = self._look_closely(observation, config, code)
            elif known.fingerprint.ingredients[_CODE] != code:
                known = self._known = known.with_code(code)
        return known.fingerprint, observation

    def forget(self) -> None:
        """Digest anew at the next call."""
        with self._lock:
            self._known = None

    def _code_digest(self, observation: Observation, config: dict[str, Plain]) -> str:
        known = self._code
        if known is None or not known.matches(observation, config):
            start = ScopeCode(
                modules=tuple(self._scope.modules()),
                owner=None if self._scope.whole else self._scope.owner,
                entries=self._entries,
                words=frozenset(_words(config)),
            )
            known = self._code = _KnownCode(CodeSurvey(start), observation, config)
        if known.survey.obstacle is not None:
            raise UncacheableError(*known.survey.obstacle)
        return known.survey.digest

    def _look_closely(
        self, observation: Observation, config: dict[str, Plain], code: str
    ) -> _Known:
        device = observation.device
        samples = WeightSamples(observation.tensors)
        sampled = samples.read()
        owner = type(self._scope.owner)
        ingredients = {
            "framework": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "encoder of": f"{owner.__module__}.{owner.__qualname__}",
            "config sha256": _digest(config),
            "modules sha256": _digest(sorted(_described(one) for one in observation.modules)),
            _CODE: code,
            "weights sha256": weights_digest(observation.tensors),
            "device": _device_name(device),
        }
        fingerprint = Fingerprint(ingredients, device)
        return _Known(fingerprint, observation, config, samples, sampled)


def _words(value: Plain) -> Iterator[str]:
    """Yield every text in *value*."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _words(one)


def _described(settings: ModuleSettings) -> str:
    name, kind, values = settings
    return f"{name}: {kind.__module__}.{kind.__qualname__} {sorted(values)!r}"


def _device_name(device: torch.device) -> str:
    """Return what computes: other devices round otherwise."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
