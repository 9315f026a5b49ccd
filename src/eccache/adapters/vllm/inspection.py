"""What vLLM would make of the arguments of `vllm serve`, without starting a server."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any

from eccache.adapters.vllm.fingerprint import model_identity
from eccache.adapters.vllm.refusals import refuse_unusable
from eccache.adapters.vllm.weights_watch import foreseen_replacement
from eccache.domain.errors import ConfigError
from eccache.ports.inspection import ServerFacts


def inspect_server(arguments: Sequence[str]) -> ServerFacts:
    """Return what a server with *arguments* would be.

    vLLM itself parses them and makes its configuration of them, so defaults, models' own settings and
    platforms are those of a real start. The model's files must be at hand as they must be for a start.

    Args:
        arguments: what follows `vllm serve`; the model may come first, without `--model`.

    Raises:
        ConfigError: vLLM is not installed here, or does not accept the arguments.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # this is no server; findings are enough
    try:
        import vllm
        from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase
    except ImportError as missing:
        msg = f"vLLM can't be imported here: {missing}."
        raise ConfigError(msg, remedy="run this in the server's environment.") from missing
    except Exception as broken:  # of whatever it loads, down to a library for another torch
        msg = f"vLLM can't be imported here: {_first_line(broken)}."
        raise ConfigError(
            msg,
            remedy="mend this environment, or run this in the server's: a server does not start here either.",
        ) from broken
    config = _vllm_config(arguments)
    try:
        refuse_unusable(config, ECConnectorBase)
        refusal = None
    except ConfigError as refused:
        refusal = refused
    identity = model_identity(config, vllm_version=vllm.__version__)
    model, transfer, lora = config.model_config, config.ec_transfer_config, config.lora_config
    multimodal = model.multimodal_config
    return ServerFacts(
        model=identity.model,
        encoder_dtype=identity.encoder_dtype,
        ingredients=identity.ingredients,
        refusal=refusal,
        connector=None if transfer is None else transfer.ec_connector,
        module=None if transfer is None else transfer.ec_connector_module_path,
        role=None if transfer is None else transfer.ec_role,
        extra_config={} if transfer is None else transfer.ec_connector_extra_config,
        multimodal=multimodal is not None and not multimodal.language_model_only,
        encoder_decoder=bool(model.is_encoder_decoder),
        tower_adapters=lora is not None and bool(lora.enable_tower_connector_lora),
        unknown=identity.unknown,
        replaces_weights=foreseen_replacement(config),
        sleeps=bool(model.enable_sleep_mode),
    )


def _vllm_config(arguments: Sequence[str]) -> Any:
    """Return the whole configuration that vLLM makes of *arguments*.

    Raises:
        ConfigError: vLLM does not accept them.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(prog="vllm serve"))
    parser.add_argument("model_tag", nargs="?", help=argparse.SUPPRESS)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            known, _ = parser.parse_known_args(list(arguments))
        if known.model_tag is not None:
            known.model = known.model_tag
        return EngineArgs.from_cli_args(known).create_engine_config()
    except SystemExit as refused:
        cause = said.getvalue().strip().splitlines()
        msg = cause[-1] if cause else "vLLM refused the arguments."
        raise ConfigError(msg, remedy=_REMEDY) from refused
    except Exception as refused:  # vLLM raises errors of many kinds, of other packages too
        raise ConfigError(_first_line(refused), remedy=_REMEDY) from refused


_REMEDY = "start the server with these arguments once; it says the same, and more."


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3]) or 'no reason given'}"
