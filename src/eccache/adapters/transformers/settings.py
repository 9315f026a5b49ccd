"""Settings as plain data that two processes write alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import torch

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

_NOT_SETTINGS: Final = frozenset(
    {
        # Where a model came from, and what it is for; its weights' content and dtype are known.
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "dtype",
        "id2label",
        "label2id",
        "torch_dtype",
        "transformers_version",
        # Of the language model, and switched between training and evaluation.
        "use_cache",
    }
)


def plain(value: object) -> Plain:
    """Return *value* as plain data.

    Args:
        value: None, a number, a text, a dtype or device, or tuples, lists and mappings of them.

    Raises:
        TypeError: there is something else in it.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    raise TypeError(f"a {type(value).__name__} is not plain data")


def config_settings(config: object) -> dict[str, Plain]:
    """Return what a model's configuration says, those of its parts included.

    Cheap enough for every call, which the framework's own way to write a configuration is not.

    Args:
        config: a `PretrainedConfig`.
    """
    settings: dict[str, Plain] = {}
    for name, value in vars(config).items():
        if name in _NOT_SETTINGS:
            continue
        if hasattr(value, "to_dict"):
            settings[name] = config_settings(value)
            continue
        try:
            settings[name] = plain(value)
        except TypeError:
            settings[name] = f"a {type(value).__qualname__}"
    return settings


def objects_of(config: object) -> Iterator[tuple[str, object]]:
    """Yield what `config_settings` names a configuration's objects by their class alone, or as parts.

    Args:
        config: a `PretrainedConfig`.
    """
    for name, value in sorted(vars(config).items()):
        if name not in _NOT_SETTINGS:
            try:
                plain(value)
            except TypeError:
                yield name, value
