"""The doctor sees a server's arguments with vLLM's own eyes, and the namespace that the server will use."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub.errors import HFValidationError
from vllm.engine.arg_utils import EngineArgs

from eccache.adapters.vllm import inspection
from eccache.adapters.vllm.inspection import inspect_server
from eccache.app.config import load_config
from eccache.app.doctor.gather import gather
from eccache.domain.errors import ConfigError
from eccache.domain.namespace import Namespace

pytestmark = pytest.mark.timeout(240)  # the first test loads all of vLLM

TRANSFER = {
    "ec_connector": "ECCacheConnector",
    "ec_connector_module_path": "eccache.app.vllm",
    "ec_role": "ec_producer",
    "ec_connector_extra_config": {"epoch": "spring"},
}


def arguments(model_folder: Path, *more: str) -> list[str]:
    """What an operator writes behind `vllm serve`, options of the API server included."""
    return [str(model_folder), "--dtype", "bfloat16", "--port", "8000", *more]


def test_a_servers_arguments_are_understood(model_folder: Path) -> None:
    """Model, dtype, connector, role and the cache's own settings come out as the server will have them."""
    transfer = json.dumps(TRANSFER)
    found = inspect_server(arguments(model_folder, "--ec-transfer-config", transfer))
    assert str(model_folder) == found.model
    assert "bfloat16" == found.encoder_dtype
    assert found.refusal is None
    assert ("ECCacheConnector", "eccache.app.vllm", "ec_producer") == (
        found.connector,
        found.module,
        found.role,
    )
    assert {"epoch": "spring"} == dict(found.extra_config)
    assert found.multimodal
    assert not found.encoder_decoder


def test_a_server_without_the_cache_is_seen(model_folder: Path) -> None:
    """No connector, and a model that is told to take text only."""
    found = inspect_server(["--model", str(model_folder), "--language-model-only"])
    assert (None, None) == (found.connector, found.role)
    assert not found.multimodal


@pytest.mark.parametrize(
    ("limits", "takes"), [({"image": 0, "video": 0}, False), ({"image": 0}, True)]
)
def test_limits_that_leave_text_alone_are_seen(
    model_folder: Path,
    limits: dict[str, int],
    takes: bool,  # noqa: FBT001
) -> None:
    """A model that takes pictures and videos, of which the server allows none."""
    found = inspect_server(arguments(model_folder, "--limit-mm-per-prompt", json.dumps(limits)))
    assert takes is found.multimodal


def test_a_processor_that_fails_is_left_to_the_start() -> None:
    """The examination goes on: a start says what fails."""

    class Failing:
        """A model whose tokenizer is missing."""

        multimodal_config = SimpleNamespace(language_model_only=False)

        @property
        def supports_multimodal_inputs(self) -> bool:
            """Fail."""
            raise OSError("no tokenizer")

    assert inspection._takes_media(Failing())  # noqa: SLF001 - a model like that has no configuration


def test_what_would_refuse_the_start_is_said_before_it(model_folder: Path) -> None:
    """The connector's own refusal, with the flags to change."""
    flags = ["--mm-processor-cache-gb", "0", "--no-enable-prefix-caching"]
    found = inspect_server(arguments(model_folder, *flags))
    assert found.refusal is not None
    assert "--enable-prefix-caching" in found.refusal.remedy


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (["--dtype", "bfloat17"], "invalid choice: 'bfloat17'"),
        (["--mm-processor-cache-gb", "much"], "invalid float value"),
        (["--max-model-len", "99999999"], "max_model_len"),
        (["--ec-transfer-config", "{'ec_role': 1}"], "Invalid JSON"),
        (["--ec-transfer-config", '{"ec_role": "ec_bth"}'], "'ec_producer', 'ec_both'"),
        (["--config", "/no/such/file.yaml"], "No such file"),
        (["--help"], "vLLM refused the arguments"),
    ],
)
def test_what_vllm_does_not_accept_is_said_in_its_words(
    model_folder: Path, wrong: list[str], cause: str
) -> None:
    """No usage text, no exit, no traceback: the reason."""
    with pytest.raises(ConfigError) as refused:
        inspect_server([str(model_folder), *wrong])
    assert cause in refused.value.cause
    assert "usage:" not in refused.value.cause
    assert "For further information" not in refused.value.cause


def test_an_option_that_there_is_not_is_named_with_the_nearest(model_folder: Path) -> None:
    """A misspelt option is not passed over: the server would not start with it."""
    with pytest.raises(ConfigError, match="--ec-transfer-confg") as refused:
        inspect_server(arguments(model_folder, "--ec-transfer-confg", "{}"))
    assert "write --ec-transfer-config" in refused.value.remedy
    with pytest.raises(ConfigError, match="--quux") as refused:
        inspect_server(arguments(model_folder, "--quux", "1"))
    assert "start the server" in refused.value.remedy


@pytest.mark.parametrize(
    "before",
    [
        [],
        ["vllm", "serve"],
        ["/usr/bin/vllm", "serve"],
        ["python", "-m", "vllm.entrypoints.openai.api_server"],
    ],
)
def test_every_way_to_write_the_arguments_is_understood(
    model_folder: Path, tmp_path: Path, before: list[str]
) -> None:
    """The whole command line too; underscores, keys behind a dot, and vLLM's own file of options."""
    transfer = json.dumps(TRANSFER)
    (tmp_path / "options.yaml").write_text(f"ec-transfer-config: '{transfer}'\n")
    for written in (
        ["--ec_transfer_config", transfer],
        [f"--ec-transfer-config={transfer}"],
        [f"--ec-transfer-config.{name}={value}" for name, value in TRANSFER.items()][:3],
        ["--config", str(tmp_path / "options.yaml")],
    ):
        found = inspect_server([*before, str(model_folder), *written])
        assert (str(model_folder), "ECCacheConnector", "ec_producer") == (
            found.model,
            found.connector,
            found.role,
        )
    plain = inspect_server([*before, "--model", str(model_folder), "--port", "8000"])
    assert (str(model_folder), None) == (plain.model, plain.connector)


def test_a_vllm_whose_options_are_elsewhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that moved them is an error with a remedy, not a traceback."""
    monkeypatch.setattr(inspection, "_MODULES_OF_OPTIONS", ("vllm.no.such_module",))
    with pytest.raises(ConfigError, match="such_module"):
        inspect_server(["model"])


@pytest.mark.parametrize(
    ("failure", "remedy"),
    [
        (ImportError("No module named 'vllm'"), "run this in the server's environment"),
        (RuntimeError("operator torchvision::nms does not exist"), "Without an accelerator"),
        (ImportError("libtorchaudio.so: undefined symbol"), "builds for the torch"),
        (RuntimeError("CUDA driver error"), "mend this environment"),
    ],
)
def test_a_vllm_that_cannot_be_imported_is_said(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, remedy: str
) -> None:
    """Missing, or broken by whatever it loads: the reason, and no traceback."""
    name = "vllm.distributed.ec_transfer.ec_connector.base"

    class Failing(MetaPathFinder):
        """Fails the import of one module."""

        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            """Fail it."""
            if fullname == name:
                raise failure

    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Failing(), *sys.meta_path])
    with pytest.raises(ConfigError) as refused:
        inspect_server(["model"])
    assert str(failure) in refused.value.cause
    assert remedy in refused.value.remedy


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    """The path is in the cause, and no error of the hub."""
    with pytest.raises(ConfigError, match=r"there is no model at .*missing-model"):
        inspect_server([str(tmp_path / "missing-model")])


@pytest.mark.parametrize(
    "error", [OSError("couldn't connect"), HFValidationError("no such repository")]
)
def test_a_model_that_the_hub_does_not_give_is_said(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Not reached, or not there: what the server needs, this user must reach too."""

    def refuse(_arguments: object) -> None:
        raise error

    monkeypatch.setattr(EngineArgs, "from_cli_args", refuse)
    with pytest.raises(
        ConfigError, match=f"'org/missing-model' can't be had here: .*{error}"
    ) as wrong:
        inspect_server(["org/missing-model"])
    assert "HF_HOME" in wrong.value.remedy


def test_the_doctors_namespace_is_the_servers(
    model_folder: Path, make_config: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the doctor shows is what the connector computes from the same arguments."""
    from eccache.app.vllm import wiring

    monkeypatch.setenv("ECCACHE_EPOCH", "autumn")
    transfer = json.dumps(TRANSFER)
    subject = gather(arguments(model_folder, "--ec-transfer-config", transfer), {}, self_test=False)
    vllm_config = make_config("ec_producer")
    vllm_config.ec_transfer_config.ec_connector_extra_config = {"epoch": "spring"}
    expected: Namespace = wiring._common(vllm_config).namespace  # noqa: SLF001 - there is no other
    assert expected.fingerprint == (subject.namespace and subject.namespace.fingerprint)
    assert "autumn" == load_config().epoch


def test_what_keeps_weights_from_being_known_is_seen(model_folder: Path) -> None:
    """Weights from elsewhere, and an extension that may replace them."""
    plain = inspect_server(arguments(model_folder))
    assert ("", "", False) == (plain.unknown, plain.replaces_weights, plain.sleeps)
    extension = ["--worker-extension-cls", "trl.Worker"]
    found = inspect_server(arguments(model_folder, "--load-format", "tensorizer", *extension))
    assert "tensorizer" in found.unknown
    assert "trl.Worker" in found.replaces_weights
