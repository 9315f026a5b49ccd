"""What keeps servers apart and what does not, on vLLM's real configuration objects."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eccache.adapters.vllm import fingerprint, reviewed_fields
from eccache.adapters.vllm.fingerprint import INGREDIENTS, model_identity
from eccache.app.bootstrap import namespace_of
from eccache.app.config import CacheConfig
from tests.unit.vllm.conftest import MakeConfig

Change = Callable[[Any], None]


def _ingredients(config: Any, version: str = "0.32.0") -> dict[str, str]:
    return dict(model_identity(config, vllm_version=version).ingredients)


def _differing(first: dict[str, str], second: dict[str, str]) -> set[str]:
    return {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)}


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": "float16"}, "dtype"),
    "revision": ({"revision": "refs/pr/1"}, "revision"),
    "code revision": ({"code_revision": "abc"}, "revision"),
    "processor kwargs": ({"mm_processor_kwargs": {"max_pixels": 50_176}}, "processor_kwargs"),
    "a kwarg that is false": ({"mm_processor_kwargs": {"do_resize": False}}, "processor_kwargs"),
    "nested processor kwargs": (
        {"mm_processor_kwargs": {"images_kwargs": {"max_pixels": 1}}},
        "processor_kwargs",
    ),
    "media kwargs": ({"media_io_kwargs": {"video": {"num_frames": 16}}}, "media_io"),
    "pruning": ({"video_pruning_rate": 0.5}, "video_pruning"),
    "attention": ({"mm_encoder_attn_backend": "TORCH_SDPA"}, "encoder_attention"),
    "hasher": ({"mm_hasher_algorithm": "sha256"}, "hasher"),
    "normalising on the host": ({"mm_device_do_normalize": False}, "device_normalize"),
    "overrides": ({"hf_overrides": {"rms_norm_eps": 1e-5}}, "implementation"),
    "implementation": ({"model_impl": "vllm"}, "implementation"),
    "remote code": ({"trust_remote_code": True}, "implementation"),
    "platform": ({"additional_config": {"graph": 1}}, "implementation"),
    "random weights": ({"load_format": "dummy"}, "weights"),
    "split over ranks": ({"tensor_parallel_size": 2}, "encoder_split"),
    "adapters": ({"enable_lora": True, "enable_tower_connector_lora": True}, "tower_adapters"),
}


@pytest.mark.parametrize("change", ARGUMENTS)
def test_an_argument_that_changes_outputs_keeps_servers_apart(
    make_config: MakeConfig, both_config: Any, change: str
) -> None:
    """And the ingredient that an operator would look for is the one that differs."""
    arguments, ingredient = ARGUMENTS[change]
    differing = _differing(_ingredients(both_config), _ingredients(make_config(**arguments)))
    assert ingredient in differing
    assert differing <= {ingredient, "loading"}


def _set(path: str, value: Any) -> Change:
    def change(config: Any) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            config = getattr(config, parent)
        setattr(config, name, value)

    return change


FIELDS: dict[str, tuple[Change, str]] = {
    "quantization": (_set("model_config.quantization", "fp8"), "quantization"),
    "quantization details": (
        _set("model_config.quantization_config", {"ignore": ["visual"]}),
        "quantization",
    ),
    "model": (_set("model_config.model", "/nowhere/else"), "model"),
    "another class": (_set("model_config.model_class_overrides", {"A": "b:C"}), "implementation"),
    "loader": (_set("load_config.model_loader_extra_config", {"a": 1}), "loading"),
    "files of another format": (_set("load_config.load_format", "pt"), "loading"),
    "seed of random weights": (
        lambda config: (
            _set("load_config.load_format", "dummy")(config),
            _set("model_config.seed", 7)(config),
        )[0],
        "weights",
    ),
    "pruning method": (
        lambda config: (
            _set("model_config.multimodal_config.video_pruning_rate", 0.5)(config),
            _set("model_config.multimodal_config.video_pruning_method", "vidcom2")(config),
        )[0],
        "video_pruning",
    ),
    "attention precision": (
        _set("model_config.multimodal_config.mm_encoder_attn_dtype", "fp8"),
        "encoder_attention",
    ),
}


@pytest.mark.parametrize("change", FIELDS)
def test_a_field_that_changes_outputs_keeps_servers_apart(both_config: Any, change: str) -> None:
    """Fields that this machine could not start a server with, set in a real configuration."""
    changed = copy.deepcopy(both_config)
    FIELDS[change][0](changed)
    assert FIELDS[change][1] in _differing(_ingredients(both_config), _ingredients(changed))


@pytest.mark.parametrize(
    "variable",
    [
        *fingerprint.MEDIA_VARIABLES,
        *fingerprint.QUANTIZATION_VARIABLES,
        "VLLM_FLOAT32_MATMUL_PRECISION",
    ],
)
def test_a_variable_that_changes_outputs_keeps_servers_apart(
    both_config: Any, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Who decodes files, how floats are multiplied, what they are rounded to: by the environment alone."""
    from vllm import envs

    before = _ingredients(both_config)
    value: object = 1 if isinstance(getattr(envs, variable), bool) else "medium"
    monkeypatch.setattr(envs, variable, value, raising=False)
    ingredients = {"media_io", "quantization", "matmul_precision"}
    assert _differing(before, _ingredients(both_config)) <= ingredients
    assert before != _ingredients(both_config)


def test_the_scales_of_an_attention_are_told_by_content(both_config: Any, tmp_path: Path) -> None:
    """A file of scales that was calibrated anew, under the same path."""
    config = copy.deepcopy(both_config)
    scales = tmp_path / "scales.json"
    config.model_config.multimodal_config.mm_encoder_fp8_scale_path = str(scales)
    scales.write_text("[1]")
    before = _ingredients(config)
    scales.write_text("[2]")
    assert {"encoder_attention"} == _differing(before, _ingredients(config))


def test_other_weights_under_the_same_path_keep_servers_apart(
    make_config: MakeConfig, model_folder: Path, tmp_path: Path
) -> None:
    """A model that was replaced in place, or behind a link that now points elsewhere."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        shutil.copytree(model_folder, folder)
    file = second / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-100_000:] = bytes(100_000)
    file.write_bytes(content)
    link = tmp_path / "current"
    link.symlink_to(first)
    before = _ingredients(make_config(model=str(link)))
    link.unlink()
    link.symlink_to(second)
    assert {"weights"} == _differing(before, _ingredients(make_config(model=str(link))))


SAME: dict[str, dict[str, Any]] = {
    "a producer": {"role": "ec_producer"},
    "a consumer": {"role": "ec_consumer"},
    "no connector": {"role": None},
    "graphs and compilation": {"enforce_eager": False},
    "length": {"max_model_len": 256},
    "prefix caching": {"enable_prefix_caching": True},
    "processor cache": {"mm_processor_cache_gb": 1},
    "limits": {"limit_mm_per_prompt": {"image": 2}},
    "embeddings from clients": {"enable_mm_embeds": True},
    "names": {"served_model_name": "other"},
    "sampling": {"seed": 7, "max_logprobs": 3},
    "adapters of the language model": {"enable_lora": True},
    "where the processor runs": {"mm_processor_kwargs": {"device": "cpu"}},
    "sequences": {"max_num_seqs": 3},
}


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_output_keeps_nobody_apart(
    make_config: MakeConfig, both_config: Any, change: str
) -> None:
    """Two servers that differ in nothing that counts share, whatever their roles and sizes."""
    assert _ingredients(both_config) == _ingredients(make_config(**SAME[change]))


def test_ranks_that_hold_the_whole_encoder_are_like_one(make_config: MakeConfig) -> None:
    """With the batch divided instead of the layers, the bits are those of a single rank."""
    whole = make_config(tensor_parallel_size=2, mm_encoder_tp_mode="data")
    assert _ingredients(make_config()) == _ingredients(whole)


def test_every_process_of_a_server_says_the_same(both_config: Any) -> None:
    """The configuration is pickled into workers."""
    copied = pickle.loads(pickle.dumps(both_config))  # noqa: S301 - our own bytes
    assert _ingredients(both_config) == _ingredients(copied)


def test_versions_keep_servers_apart(both_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of vLLM, and of transformers, which makes the pixels."""
    import transformers

    before = _ingredients(both_config)
    assert {"vllm"} == _differing(before, _ingredients(both_config, "0.33.0"))
    monkeypatch.setattr(transformers, "__version__", "99.0")
    assert {"vllm"} == _differing(before, _ingredients(both_config))


@pytest.mark.parametrize(
    ("waives", "ingredient"),
    [
        (CacheConfig(ignore_vllm_version=True), "vllm"),
        (CacheConfig(ignore_encoder_split=True), "encoder_split"),
    ],
    ids=["vllm", "encoder_split"],
)
def test_an_operator_may_waive(both_config: Any, waives: CacheConfig, ingredient: str) -> None:
    """Those who waive an ingredient share with each other, and with nobody else."""
    strict = CacheConfig()
    first = _ingredients(both_config)
    second = first | {ingredient: "another"}
    assert namespace_of(strict, first) != namespace_of(strict, second)
    assert namespace_of(waives, first) == namespace_of(waives, second)
    assert namespace_of(waives, first) != namespace_of(strict, first)
    other = first | {"weights": "another"}
    assert namespace_of(waives, first) != namespace_of(waives, other)
    assert namespace_of(waives, {}) == namespace_of(strict, {}), "what is not there is not waived"


def test_an_epoch_keeps_servers_apart(both_config: Any) -> None:
    """An operator's word that everything before is void."""
    found = _ingredients(both_config)
    spaces = {namespace_of(CacheConfig(epoch=epoch), found).fingerprint for epoch in ("", "1", "2")}
    assert 3 == len(spaces)


# --- what can't be told ---------------------------------------------------------------------------------


def test_what_can_not_be_told_is_said(both_config: Any) -> None:
    """Weights from elsewhere, or a function in place of settings: nothing is shared, and why."""
    assert not model_identity(both_config, vllm_version="1").unknown
    for change, words in (
        (_set("load_config.load_format", "tensorizer"), "tensorizer"),
        (_set("model_config.model_weights", "s3://bucket/model"), "s3://bucket/model"),
        (_set("model_config.model", "org/nobody-has-it"), "no commit of org/nobody-has-it"),
        (_set("model_config.hf_overrides", lambda config: config), "hf_overrides"),
    ):
        config = copy.deepcopy(both_config)
        change(config)
        assert words in model_identity(config, vllm_version="1").unknown


def test_a_folder_that_can_not_be_read_is_said(both_config: Any, tmp_path: Path) -> None:
    """A broken link among the weights: which weights these are, nobody can tell."""
    config = copy.deepcopy(both_config)
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    config.model_config.model = str(tmp_path)
    assert "can't be read" in model_identity(config, vllm_version="1").unknown


def test_a_model_of_a_hub_is_told_by_its_commit(
    both_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that the revision stands for in the local cache, or that was asked for itself."""
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download, "HF_HUB_CACHE", str(tmp_path), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--tiny"
    first, second = "a" * 40, "b" * 40
    for commit in (first, second):
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    config = copy.deepcopy(both_config)
    config.model_config.model = "org/tiny"
    for commit in (first, second):
        (repository / "refs" / "main").write_text(commit)
        assert f"commit {commit}" == _ingredients(config)["weights"]
    config.model_config.revision = "c" * 40
    assert f"commit {'c' * 40}" == _ingredients(config)["weights"]
    monkeypatch.setattr("vllm.envs.VLLM_USE_MODELSCOPE", True, raising=False)
    other_hub = model_identity(config, vllm_version="1")
    assert ("", True) == (other_hub.ingredients["weights"], "ModelScope" in other_hub.unknown)


# --- fields that nobody has looked at -------------------------------------------------------------------


def _classes() -> list[type]:
    from vllm import config

    return [getattr(config, name) for name in reviewed_fields.USED]


def test_every_field_of_this_vllm_was_looked_at() -> None:
    """A field that a newer vLLM adds: decide in `reviewed_fields` what it has to do with an output."""
    new = {
        f"{cls.__name__}.{field.name}"
        for cls in _classes()
        for field in dataclasses.fields(cls)
        if field.name not in reviewed_fields.USED[cls.__name__]
        and field.name not in reviewed_fields.IGNORED[cls.__name__]
    }
    assert set() == new


def test_no_field_is_both_used_and_ignored() -> None:
    """Each has one answer, and one reason."""
    for name, used in reviewed_fields.USED.items():
        assert set() == used & reviewed_fields.IGNORED[name].keys()
        assert all(reviewed_fields.IGNORED[name].values())


def test_every_used_field_is_read(both_config: Any) -> None:
    """Each field that is said to be used changes the fingerprint, or what is said to be unknown."""
    for change in (change for change, _ in FIELDS.values()):
        changed = copy.deepcopy(both_config)
        change(changed)
        assert model_identity(changed, vllm_version="1") != model_identity(
            both_config, vllm_version="1"
        )


def _with_new_field(config: Any, default: Any, value: Any) -> Any:
    """The same configuration as a newer vLLM would have it: with one more field."""
    newer = dataclasses.make_dataclass(
        type(config).__name__, [("mm_new_option", Any, dataclasses.field(default=default))]
    )
    new = newer(value)
    fields = [*dataclasses.fields(config), *dataclasses.fields(newer)]
    new.__dataclass_fields__ = {field.name: field for field in fields}
    new.__dict__.update(config.__dict__)
    return new


@pytest.mark.parametrize("owner", ["model_config", "multimodal_config", "load_config"])
def test_a_new_field_is_not_silently_left_out(both_config: Any, owner: str) -> None:
    """Set to something by an operator, it keeps servers apart until somebody has looked at it."""

    def newer(value: Any) -> dict[str, str]:
        config = copy.copy(both_config)
        config.model_config = model = copy.copy(both_config.model_config)
        if owner == "load_config":
            config.load_config = _with_new_field(both_config.load_config, None, value)
        elif owner == "model_config":
            config.model_config = _with_new_field(model, None, value)
        else:
            model.multimodal_config = _with_new_field(model.multimodal_config, None, value)
        return _ingredients(config)

    assert _ingredients(both_config) == newer(None)
    assert {"unreviewed"} == _differing(newer(None), newer("fast"))
    assert newer("fast") != newer("faster")
    assert newer(object()) == newer(object()), "what has no text must not differ between processes"


# --- the docs -------------------------------------------------------------------------------------------


def test_the_page_lists_every_ingredient_with_its_reason() -> None:
    """In the order of the code, word for word."""
    page = (Path(__file__).parents[3] / "docs" / "identity.md").read_text()
    expected = [f"| `{one.name}` | {one.reason} |" for one in INGREDIENTS]
    found = [line for line in page.splitlines() if line.startswith("| `")]
    assert expected == found[: len(expected)]
