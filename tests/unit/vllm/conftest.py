"""vLLM's real configuration of a tiny model, made once."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eccache.app.demo.model import TINY, build_model

# Before vLLM is imported: nothing may be asked of a network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

MakeConfig = Callable[..., Any]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny Qwen2.5-VL."""
    return build_model(tmp_path_factory.mktemp("vllm-unit-model"), TINY).directory


@pytest.fixture(scope="session")
def make_config(model_folder: Path) -> MakeConfig:
    """Makes vLLM's whole configuration, as `vllm serve` would from the same arguments."""

    def make(role: str | None = "ec_both", *, connector: str = "", **arguments: Any) -> Any:
        from vllm.config import ECTransferConfig
        from vllm.engine.arg_utils import EngineArgs

        transfer = None
        if role is not None:
            transfer = ECTransferConfig(
                ec_connector="ECCacheConnector",
                ec_connector_module_path=connector or "eccache.app.vllm",
                ec_role=role,
            )
        defaults = {
            "model": str(model_folder),
            "dtype": "bfloat16",
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "max_model_len": 512,
        }
        return EngineArgs(
            **(defaults | arguments), ec_transfer_config=transfer
        ).create_engine_config()

    return make


@pytest.fixture(scope="session")
def both_config(make_config: MakeConfig) -> Any:
    """The configuration of a server that stores and serves."""
    return make_config()
