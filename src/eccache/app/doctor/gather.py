"""Collecting what the checks look at: from this machine, the configuration, the root and vLLM."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eccache.app.bootstrap import inspect_vllm, namespace_of
from eccache.app.bootstrap.stores import operator_root
from eccache.app.bootstrap.tier_trial import has_remote_tier, try_out_tier
from eccache.app.bootstrap.upkeep import (
    memory_available_nbytes,
    stored_namespaces,
    stored_nbytes,
    try_out_root,
)
from eccache.app.config import CacheConfig
from eccache.app.doctor.machine import Machine
from eccache.app.doctor.server import CONNECTOR, MODULE
from eccache.app.doctor.subject import Subject, loaded_or_error
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import Namespace
from eccache.ports.inspection import ServerFacts

_TRANSFER: Final = "--ec-transfer-config"
_WRONG_TRANSFER: Final = "--kv-transfer-config"
_OWN_WORDS: Final = (CONNECTOR, MODULE)


def gather(
    arguments: Sequence[str], settings: Mapping[str, Any], *, self_test: bool = True
) -> Subject:
    """Return the set-up as it is here.

    Args:
        arguments: of `vllm serve`; none: no server is looked at.
        settings: values by name that go before every other source.
        self_test: whether an existing root and the remote tier may be tried out.
    """
    wrong_option = is_given_to_the_kv_cache(arguments)
    # vLLM's words for that slip are about the constructor of a class.
    server, server_error = (None, None) if wrong_option else _server(arguments)
    extra_config = written_extra_config(arguments) if server is None else server.extra_config
    loaded, config_error, dropped = loaded_or_error(extra_config, settings)
    config = None if loaded is None else loaded.config
    root = None if config is None or not config.enabled else operator_root(config)
    machine = Machine.here(memory_available_nbytes())
    return Subject(
        machine=machine,
        loaded=loaded,
        config_error=config_error,
        dropped=dropped,
        root=root,
        server=server,
        server_error=server_error,
        wrong_option=wrong_option,
        namespace=_namespace(server, config),
        stored=() if root is None else stored_namespaces(root),
        stored_nbytes=0 if root is None or config is None else stored_nbytes(root, config),
        self_test=_self_test(root, config) if self_test else None,
        try_tier=_tier_trial(machine, config) if self_test else None,
    )


def _server(arguments: Sequence[str]) -> tuple[ServerFacts | None, ConfigError | None]:
    if not arguments:
        return None, None
    try:
        return inspect_vllm(arguments), None
    except ConfigError as refused:
        return None, refused


def is_given_to_the_kv_cache(arguments: Sequence[str]) -> bool:
    """Return whether *arguments* name the cache's connector in the option of KV caches."""
    written = _written(arguments)
    return any(
        name.startswith(_WRONG_TRANSFER) and any(word in value for word in _OWN_WORDS)
        for name, value in written.items()
    )


def written_extra_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    """Return the cache's settings as *arguments* have them, for where vLLM can't be asked; none if unsure."""
    by_name = _written(arguments)
    options = [_TRANSFER]
    if is_given_to_the_kv_cache(arguments):  # else the option has another connector's settings
        options.append(_WRONG_TRANSFER)
    for option, prefix in itertools.product(options, ("ec", "kv")):
        try:
            extra_config = json.loads(by_name[option])[f"{prefix}_connector_extra_config"]
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(extra_config, dict):
            return extra_config
    return {}


def _written(arguments: Sequence[str]) -> dict[str, str]:
    """Return the value of each option as it is written."""
    joined = dict(word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
    written = dict(itertools.pairwise(arguments)) | joined
    return {name.replace("_", "-"): value for name, value in written.items()}


def _namespace(server: ServerFacts | None, config: CacheConfig | None) -> Namespace | None:
    if server is None or config is None:
        return None
    return namespace_of(config, server.ingredients)


def _self_test(root: str | None, config: CacheConfig | None) -> Callable[[], None] | None:
    """Return the self-test; None where there is nothing to try, or nothing may be written."""
    if root is None or config is None or not os.access(root, os.R_OK | os.W_OK | os.X_OK):
        return None
    return functools.partial(try_out_root, root, config)


def _tier_trial(machine: Machine, config: CacheConfig | None) -> Callable[[], str] | None:
    """Return the trial of the remote tier; None where there is none, or the check of versions says why."""
    if config is None or "lmcache" not in machine.versions or not has_remote_tier(config):
        return None
    return functools.partial(try_out_tier, config)
