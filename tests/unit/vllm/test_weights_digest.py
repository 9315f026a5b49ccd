"""Which weights a folder holds: what is told apart, and what is not."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eccache.adapters.vllm.weights_digest import (
    BLOCK_NBYTES,
    PLACES,
    TENSORS_PER_KIND,
    content_digest,
    model_digest,
)

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(model_folder: Path, tmp_path: Path) -> Path:
    """A copy of a whole model that a test may change."""
    return Path(shutil.copytree(model_folder, tmp_path / "model"))


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WEIGHTS)


def _save(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    nbytes = (folder / WEIGHTS).stat().st_size
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    assert nbytes == (folder / WEIGHTS).stat().st_size, "the size alone would tell them apart"


@pytest.mark.parametrize(
    "name",
    [
        "visual.blocks.1.mlp.up_proj.weight",
        "visual.merger.mlp.0.bias",
        "model.layers.0.mlp.up_proj.weight",
    ],
)
def test_a_trained_tensor_is_noticed(folder: Path, name: str) -> None:
    """Training changes a tensor throughout: each tensor is looked into, the encoder's and others'."""
    before = model_digest(folder)
    tensors = _tensors(folder)
    tensors[name] = tensors[name] + torch.randn(tensors[name].shape).bfloat16() * 0.01
    _save(folder, tensors)
    assert before != model_digest(folder)


def test_tensors_that_change_places_are_noticed(folder: Path) -> None:
    """Two layers exchanged: the same bytes, another model."""
    before = model_digest(folder)
    tensors = _tensors(folder)
    first, second = "visual.blocks.0.attn.proj.weight", "visual.blocks.1.attn.proj.weight"
    tensors[first], tensors[second] = tensors[second].clone(), tensors[first].clone()
    _save(folder, tensors)
    assert before != model_digest(folder)


@pytest.mark.parametrize(
    "file", ["config.json", "preprocessor_config.json", "video_preprocessor_config.json"]
)
def test_a_setting_is_noticed(folder: Path, file: str) -> None:
    """The encoder is built from the one, pixels are made by the others."""
    before = model_digest(folder)
    settings = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(settings | {"patch_size": 16}))
    assert before != model_digest(folder)


@pytest.mark.parametrize(
    "name", ["modeling_tiny.py", "params.json", "code/processing.py", "extra.safetensors"]
)
def test_what_is_added_is_noticed(folder: Path, name: str) -> None:
    """Code, another publisher's settings, another file of weights."""
    before = model_digest(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"{}")
    assert before != model_digest(folder)


def _touch(folder: Path) -> Path:
    for file in folder.iterdir():
        os.utime(file, ns=(1, 1))
    return folder


def _move(folder: Path) -> Path:
    return folder.rename(folder.parent / "elsewhere")


def _link(folder: Path) -> Path:
    links = folder.parent / "snapshot"
    links.mkdir()
    for file in folder.iterdir():
        (links / file.name).symlink_to(file)
    return links


def _edit_text_side(folder: Path) -> Path:
    for name in ("README.md", "tokenizer_config.json", "generation_config.json", ".gitattributes"):
        (folder / name).write_text("edited")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.pth").write_bytes(b"the same again")
    return folder


@pytest.mark.parametrize("change", [_touch, _move, _link, _edit_text_side])
def test_what_changes_no_output_changes_no_digest(
    folder: Path, change: Callable[[Path], Path]
) -> None:
    """Times, places, links as a hub's cache has them, and the text side."""
    before = model_digest(folder)
    assert before == model_digest(change(folder))


def _write(file: Path, header: bytes, payload_nbytes: int) -> None:
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + payload_nbytes)


def test_reading_is_bounded_however_large_the_model(tmp_path: Path) -> None:
    """A terabyte of experts, in a file without content: told in bounded reads."""
    count, nbytes = 20_000, 50 << 20
    tensors = {
        f"layers.0.experts.{n}.weight": {
            "dtype": "BF16",
            "shape": [nbytes // 2],
            "data_offsets": [n * nbytes, (n + 1) * nbytes],
        }
        for n in range(count)
    }
    file = tmp_path / WEIGHTS
    _write(file, json.dumps(tensors).encode(), count * nbytes)
    before = model_digest(tmp_path)
    read = Path("/proc/self/io").read_text().split()
    assert before == model_digest(tmp_path)
    again = Path("/proc/self/io").read_text().split()
    header = file.stat().st_size - count * nbytes
    assert int(again[1]) - int(read[1]) < header + (TENSORS_PER_KIND + 1) * BLOCK_NBYTES + (1 << 20)


@pytest.mark.parametrize(
    "header",
    [
        b"{}",
        b"{" + b"x" * 100,
        b"[1]",
        b'{"a": {"data_offsets": [9, -4]}}',
        b'{"a": {"data_offsets": [0, 99999999999]}}',
        b'{"a": {"data_offsets": "x"}}',
        b'{"a": 5}',
    ],
)
def test_a_damaged_file_of_weights_has_a_digest(tmp_path: Path, header: bytes) -> None:
    """Loading it, vLLM will say what is wrong; until then it is like no other."""
    _write(tmp_path / WEIGHTS, header, 1000)
    before = model_digest(tmp_path)
    assert before == model_digest(tmp_path)
    _write(tmp_path / WEIGHTS, header, 1001)
    assert before != model_digest(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf"])
@pytest.mark.parametrize("nbytes", [100, PLACES * BLOCK_NBYTES * 3])
def test_other_formats_are_sampled_all_over(tmp_path: Path, name: str, nbytes: int) -> None:
    """Their tensors can't be found without their loader, so places are looked at, evenly."""
    file = tmp_path / name
    file.write_bytes(bytes(nbytes))
    before = model_digest(tmp_path)
    assert before == model_digest(file), "a file alone is told like the only one of a folder"
    share = nbytes // PLACES
    for place in (0, PLACES // 2, PLACES - 1):
        changed = bytearray(nbytes)
        changed[place * share + share // 2] = 1
        file.write_bytes(changed)
        assert before != model_digest(tmp_path)


def test_the_content_of_an_adapter_is_all_of_it(tmp_path: Path) -> None:
    """One bit anywhere, in what is small enough to be read."""
    (tmp_path / "adapter_config.json").write_text("{}")
    file = tmp_path / "adapter_model.safetensors"
    file.write_bytes(bytes(100_000))
    before = content_digest(tmp_path)
    for position in (0, 12_345, 99_999):
        changed = bytearray(100_000)
        changed[position] = 1
        file.write_bytes(changed)
        assert before != content_digest(tmp_path)
    file.write_bytes(bytes(100_000))
    (tmp_path / "README.md").write_text("trained on a Tuesday")
    assert before == content_digest(tmp_path)
    (tmp_path / "adapter_config.json").write_text('{"r": 8}')
    assert before != content_digest(tmp_path)


def test_a_model_in_one_file_is_told_by_its_encoders_file_too(tmp_path: Path) -> None:
    """The language model's file stays; the projector beside it, with the vision encoder, is another."""
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF" * 100)
    alone = model_digest(model)
    (tmp_path / "another.gguf").write_bytes(b"another model's")
    assert alone == model_digest(model)
    digests = {alone}
    for name, content in (("mmproj-model.gguf", b"one"), ("mmproj-model.gguf", b"two")):
        (tmp_path / name).write_bytes(content)
        digests.add(model_digest(model))
    assert 3 == len(digests)
