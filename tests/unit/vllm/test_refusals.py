"""Configurations that are refused at start, on vLLM's real configuration objects."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase

from eccache.adapters.vllm.reachability import engine_token
from eccache.adapters.vllm.refusals import refuse_unusable
from eccache.domain.errors import ConfigError
from tests.unit.vllm.conftest import MakeConfig


def test_an_ordinary_configuration_is_accepted(both_config: Any) -> None:
    """Prefix caching off alone, or the processor cache off alone, is fine."""
    refuse_unusable(both_config, ECConnectorBase)


def test_one_of_the_two_caches_is_enough(make_config: MakeConfig) -> None:
    """With prefix caching on vLLM hashes inputs, whatever the processor cache is."""
    config = make_config(mm_processor_cache_gb=0, enable_prefix_caching=True)
    refuse_unusable(config, ECConnectorBase)


def test_counted_ids_are_refused_and_both_flags_named(make_config: MakeConfig) -> None:
    """Ids that start again with every server would serve another input's output."""
    config = make_config(mm_processor_cache_gb=0, enable_prefix_caching=False)
    with pytest.raises(ConfigError) as refused:
        refuse_unusable(config, ECConnectorBase)
    for flag in (
        "--mm-processor-cache-gb",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
    ):
        assert flag in str(refused.value)


def _parallel(**different: Any) -> Any:
    """A configuration that differs in how ranks are laid out; the rest is ordinary."""
    parallel = {
        "nnodes": 1,
        "nnodes_within_dp": 1,
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "distributed_executor_backend": "mp",
    }
    return SimpleNamespace(
        model_config=SimpleNamespace(multimodal_config=None),
        cache_config=SimpleNamespace(enable_prefix_caching=True),
        parallel_config=SimpleNamespace(**(parallel | different)),
        use_v2_model_runner=different.get("v2", False),
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            _parallel(nnodes=2, nnodes_within_dp=2, tensor_parallel_size=16),
            "2 hosts.*--nnodes 2.*--tensor-parallel-size 16.*--nnodes 1",
        ),
        (_parallel(distributed_executor_backend="external_launcher"), "external_launcher.*mp"),
        (
            _parallel(pipeline_parallel_size=2),
            "--pipeline-parallel-size 2.*VLLM_USE_V2_MODEL_RUNNER=1",
        ),
    ],
    ids=["several hosts", "external launcher", "pipeline on the first runner"],
)
def test_layouts_under_which_promises_fail_are_refused(config: Any, words: str) -> None:
    """Ranks that can't reach the copies, decide for themselves, or can't acknowledge."""
    with pytest.raises(ConfigError, match=re.compile(words, re.DOTALL)):
        refuse_unusable(config, ECConnectorBase)


@pytest.mark.parametrize(
    "config",
    [_parallel(pipeline_parallel_size=2, v2=True), _parallel(nnodes=2, nnodes_within_dp=1)],
    ids=["pipeline on the second runner", "replicas on several hosts"],
)
def test_layouts_that_work_are_accepted(config: Any) -> None:
    """What only looks like a refused layout is served."""
    refuse_unusable(config, ECConnectorBase)


def test_an_old_vllm_is_refused(both_config: Any) -> None:
    """A vLLM without the hooks is named too old, with the version to install."""
    with pytest.raises(ConfigError, match=r"too old.*ensure_cache_available.*0\.30"):
        refuse_unusable(both_config, object)


def test_another_platform_is_refused(both_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector is for Linux, and says so."""
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigError, match="Linux only, not on darwin"):
        refuse_unusable(both_config, ECConnectorBase)


def test_every_process_of_an_engine_derives_one_token(make_config: MakeConfig) -> None:
    """A pickled configuration gives the same token, another engine's another, and so does a replica's."""
    import pickle

    config = make_config()
    copied = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes
    assert engine_token(config) == engine_token(copied)
    assert engine_token(config) != engine_token(make_config())
    copied.parallel_config.data_parallel_index = 1
    assert engine_token(config) != engine_token(copied)
