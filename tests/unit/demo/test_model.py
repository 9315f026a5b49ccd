"""The demo's model: whole, small, and the same on every run."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from eccache.app.demo import tokenizer
from eccache.app.demo.model import TINY, build_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model's folder."""
    return build_model(tmp_path_factory.mktemp("model"), TINY).directory


def test_the_same_size_gives_the_same_files(model: Path, tmp_path: Path) -> None:
    """Nothing depends on the run: two servers of the demo load equal weights."""
    again = build_model(tmp_path, TINY).directory
    contents = {file.name: file.read_bytes() for file in model.iterdir()}
    assert contents == {file.name: file.read_bytes() for file in again.iterdir()}


def test_weights_are_bfloat16_and_fit_the_configuration(model: Path) -> None:
    """The embedding has a row for each token, and as many columns as an encoder output."""
    config = json.loads((model / "config.json").read_text())
    with safe_open(model / "model.safetensors", framework="pt") as weights:
        embedding = weights.get_slice("model.embed_tokens.weight")
        assert [config["vocab_size"], TINY.text_width] == embedding.get_shape()
        assert "BF16" == embedding.get_dtype()
    assert TINY.text_width == config["vision_config"]["out_hidden_size"]


def test_the_output_layer_knows_only_words(model: Path) -> None:
    """Two different answers never print alike: no stray byte, no special token has an output weight."""
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(model / "tokenizer.json")).get_vocab(
        with_added_tokens=True
    )
    speakable = tokenizer.speakable_ids(vocabulary)
    with safe_open(model / "model.safetensors", framework="pt") as weights:
        rows = (
            weights.get_tensor("lm_head.weight")
            .float()
            .abs()
            .sum(dim=1)
            .nonzero()
            .flatten()
            .tolist()
        )
    assert speakable == rows
    assert not {vocabulary[token] for token in tokenizer.SPECIAL_TOKENS}.intersection(speakable)


def test_a_text_head_that_vllm_refuses_is_refused_here() -> None:
    """VLLM's CPU attention starts at 32 values a head."""
    from attrs import evolve

    with pytest.raises(ValueError, match="text_head_width"):
        evolve(TINY, text_head_width=16)
