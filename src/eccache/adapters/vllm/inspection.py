"""What vLLM would make of the arguments of `vllm serve`, without starting a server."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import io
import itertools
import os
import re
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
        arguments: what follows `vllm serve`, or the whole command line.

    Raises:
        ConfigError: vLLM is not installed here, or does not accept the arguments.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # this is no server; findings are enough
    try:
        import vllm
        from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase
    except ImportError as missing:
        msg = f"vLLM can't be imported here: {missing}."
        raise ConfigError(
            msg, remedy=_remedy_of(missing) or "run this in the server's environment."
        ) from missing
    except Exception as broken:  # of whatever it loads, down to a library for another torch
        msg = f"vLLM can't be imported here: {_first_line(broken)}."
        raise ConfigError(
            msg,
            remedy=_remedy_of(broken)
            or "mend this environment, or run this in the server's: a server does not start here either.",
        ) from broken
    config = _vllm_config(arguments)
    try:
        refuse_unusable(config, ECConnectorBase)
        refusal = None
    except ConfigError as refused:
        refusal = refused
    identity = model_identity(config, vllm_version=vllm.__version__)
    model, transfer, lora = config.model_config, config.ec_transfer_config, config.lora_config
    return ServerFacts(
        model=identity.model,
        encoder_dtype=identity.encoder_dtype,
        ingredients=identity.ingredients,
        refusal=refusal,
        connector=None if transfer is None else transfer.ec_connector,
        module=None if transfer is None else transfer.ec_connector_module_path,
        role=None if transfer is None else transfer.ec_role,
        extra_config={} if transfer is None else transfer.ec_connector_extra_config,
        multimodal=_takes_media(model),
        encoder_decoder=bool(model.is_encoder_decoder),
        tower_adapters=lora is not None and bool(lora.enable_tower_connector_lora),
        unknown=identity.unknown,
        replaces_weights=foreseen_replacement(config),
        sleeps=bool(model.enable_sleep_mode),
    )


def _takes_media(model: Any) -> bool:
    """Return whether a server of *model* lets anything but text in, which limits of inputs may forbid too."""
    multimodal = model.multimodal_config
    if multimodal is None or multimodal.language_model_only:
        return False
    try:
        return bool(model.supports_multimodal_inputs)
    except Exception:  # noqa: BLE001 - of the model's processor; or a release that has it elsewhere
        return True  # a start says what fails, and better


_TORCHS_COMPANIONS = re.compile("torchvision|torchaudio|torchcodec")


def _remedy_of(broken: Exception) -> str:
    """Return what to do about an import that failed, where that is known."""
    if not _TORCHS_COMPANIONS.search(str(broken)):
        return ""
    return (
        "install torchvision, torchaudio and torchcodec in builds for the torch that is installed "
        'here; where there is no accelerator, as docs/start.md says under "Without an accelerator".'
    )


def _vllm_config(arguments: Sequence[str]) -> Any:
    """Return the whole configuration that vLLM makes of *arguments*.

    Raises:
        ConfigError: vLLM does not accept them.
    """
    from vllm.engine.arg_utils import EngineArgs

    parsed = _parsed(_behind_serve(arguments))
    if parsed.model_tag is not None:
        parsed.model = parsed.model_tag
    try:
        return EngineArgs.from_cli_args(parsed).create_engine_config()
    except Exception as refused:  # vLLM raises errors of many kinds, of other packages too
        here = os.path.exists(parsed.model)  # noqa: PTH110
        if not here and _looks_like_a_path(parsed.model):
            msg = f"there is no model at {parsed.model!r}."
            raise ConfigError(msg, remedy="correct the path.") from refused
        if not here and _is_of_the_hub(refused):
            raise ConfigError(
                f"the model {parsed.model!r} can't be had here: {_first_line(refused)}",
                remedy="name its folder, or let this user reach what the server reaches: the hub, or the "
                "cache of its downloads (HF_HOME).",
            ) from refused
        raise ConfigError(_first_line(refused), remedy=_REMEDY) from refused


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """Return what `vllm serve` itself reads, from a file that `--config` names too.

    Raises:
        ConfigError: it does not accept *arguments*.
    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    serve = _servers_options(parser.add_subparsers().add_parser("serve"))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parsed: argparse.Namespace = parser.parse_args(["serve", *arguments])
    except SystemExit as refused:
        raise _refusal(said.getvalue(), list(serve._option_string_actions)) from refused  # noqa: SLF001
    except Exception as refused:  # of the file that --config names
        raise ConfigError(_first_line(refused), remedy=_REMEDY) from refused
    return parsed


_MODULES_OF_OPTIONS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Where vLLM describes the options of its server: since 0.32, and before."""


def _servers_options(parser: Any) -> Any:
    for name in _MODULES_OF_OPTIONS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name).make_arg_parser(parser)
    msg = f"this vLLM has none of {', '.join(_MODULES_OF_OPTIONS)}."
    raise ConfigError(msg, remedy="run the doctor without arguments, and report this.")


def _behind_serve(arguments: Sequence[str]) -> list[str]:
    """Return what follows `vllm serve`, also where the whole command line was given."""
    words = list(arguments)
    for index, (word, following) in enumerate(itertools.pairwise(words)):
        if word.startswith("-") and word != "-m":
            break
        whole = word.rpartition("/")[2] == "vllm" and following == "serve"
        if whole or (word == "-m" and following.startswith("vllm.")):
            return words[index + 2 :]
    return words


def _is_of_the_hub(error: Exception) -> bool:
    """Whether *error* says that the hub can't be reached, or has no such model."""
    return isinstance(error, OSError) or type(error).__module__.startswith("huggingface_hub.")


def _looks_like_a_path(model: str) -> bool:
    return model.startswith(("/", ".", "~")) or model.count("/") > 1


_REMEDY = "start the server with these arguments once; it says the same, and more."
_REFUSAL = re.compile(r"^vllm(?: serve)?: error: ", re.MULTILINE)
_UNKNOWN = re.compile(r"unrecognized arguments: (--[^\s=]+)")


def _refusal(said: str, options: list[str]) -> ConfigError:
    """Return why the parser ended, less the usage before it."""
    _, *reasons = _REFUSAL.split(said)
    cause = " ".join(_telling_lines(reasons[0])) if reasons else "vLLM refused the arguments."
    unknown = _UNKNOWN.search(cause)
    near = difflib.get_close_matches(unknown[1], options, n=1) if unknown else []
    return ConfigError(cause, remedy=f"write {near[0]}, which is the nearest." if near else _REMEDY)


def _first_line(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {' '.join(_telling_lines(str(error))[:3]) or 'no reason given'}"
    )


def _telling_lines(text: str) -> list[str]:
    """Return the lines of *text* that are not empty, less pydantic's links to its documentation."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("For further information visit")]
