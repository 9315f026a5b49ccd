"""Which weights a server loads: a commit, or a digest of what lies in its folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import attrs

from eccache.adapters.vllm.weights_digest import model_digest

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_CONFIG_FILES: Final = ("config.json", "params.json")
_READ_THE_FOLDER: Final = frozenset(
    {
        "auto",
        "bitsandbytes",
        "fastsafetensors",
        "gguf",
        "hf",
        "instanttensor",
        "mistral",
        "npcache",
        "pt",
        "runai_streamer",
        "runai_streamer_sharded",
        "safetensors",
        "sharded_state",
    }
)
"""Load formats that read the weights from the model's folder. Others get them from elsewhere."""
_DUMMY: Final = "dummy"


@attrs.frozen
class WeightsIdentity:
    """Which weights a server loads.

    Attributes:
        text: equal where the weights are; empty where that can't be told.
        unknown: why it can't be told; empty where it can.
    """

    text: str = ""
    unknown: str = ""


def weights_identity(model_config: Any, load_config: Any) -> WeightsIdentity:
    """Return which weights vLLM's model loader will read, or has read.

    Every process of a server gets the same answer, before the weights are loaded and after, as long as
    nobody replaces them meanwhile.
    """
    load_format = str(load_config.load_format)
    if load_format == _DUMMY:
        return WeightsIdentity(f"random, seed {model_config.seed}")
    if load_format not in _READ_THE_FOLDER:
        return WeightsIdentity(unknown=f"--load-format {load_format} reads them from elsewhere")
    if model_config.model_weights:
        return WeightsIdentity(unknown=f"they come from {model_config.model_weights}")
    path = Path(model_config.model)
    return _of_files(path) if path.exists() else _of_hub(model_config)


def _of_files(path: Path) -> WeightsIdentity:
    try:
        return WeightsIdentity(f"files {model_digest(path)}")
    except OSError as failed:
        return WeightsIdentity(unknown=f"{failed.filename} can't be read: {failed.strerror}")


def _of_hub(model_config: Any) -> WeightsIdentity:
    from vllm import envs

    if getattr(envs, "VLLM_USE_MODELSCOPE", False):
        # A commit of that name in the cache of another hub would be taken for what is loaded.
        return WeightsIdentity(unknown=f"{model_config.model} comes from ModelScope")
    commit = _commit(model_config)
    if commit is None:
        return WeightsIdentity(unknown=f"no commit of {model_config.model} is in the local cache")
    return WeightsIdentity(f"commit {commit}")


def _commit(model_config: Any) -> str | None:
    """Return the commit of a model that comes from a hub: its configuration was fetched at the start."""
    revision = model_config.revision
    if revision is not None and _COMMIT.fullmatch(revision):
        return str(revision)
    from huggingface_hub import try_to_load_from_cache

    for name in _CONFIG_FILES:
        try:
            found = try_to_load_from_cache(model_config.model, name, revision=revision)
        except ValueError:  # no name that a hub could have
            return None
        if isinstance(found, str):
            folder = Path(found).parent
            return folder.name if _COMMIT.fullmatch(folder.name) else None
    return None
