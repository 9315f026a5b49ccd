"""Inspection port: what a serving framework would do with the arguments that an operator gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from eccache.domain.errors import ConfigError


@attrs.frozen(kw_only=True)
class ServerFacts:
    """A server that was configured and not started.

    Attributes:
        model: name or path, as in keys.
        encoder_dtype: torch's name of the dtype that the encoder runs in.
        ingredients: what must match for reuse, in words.
        refusal: why the cache would stop the start; None if it would not.
        connector: class of the connector that the server would load; None without one.
        module: module that it is loaded from.
        role: `ec_producer`, `ec_consumer` or `ec_both`; None without a connector.
        extra_config: settings that the arguments hold for the cache.
        multimodal: whether the model takes media at all.
        encoder_decoder: whether its encoder feeds a decoder of its own, so that nothing can be shared.
        tower_adapters: whether adapters change the encoder per request.
        unknown: what can't be told of the model, and why; empty: nothing.
        replaces_weights: what lets weights be replaced unseen while the server runs; empty: nothing.
        sleeps: whether the server may be put to sleep.
    """

    model: str
    encoder_dtype: str
    ingredients: Mapping[str, str]
    refusal: ConfigError | None = None
    connector: str | None = None
    module: str | None = None
    role: str | None = None
    extra_config: Mapping[str, Any] = attrs.field(factory=dict)
    multimodal: bool = True
    encoder_decoder: bool = False
    tower_adapters: bool = False
    unknown: str = ""
    replaces_weights: str = ""
    sleeps: bool = False
