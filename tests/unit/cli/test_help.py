"""Examples in a command's help can be pasted, however narrow the terminal is."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from eccache.app.cli import main

EXAMPLES = {
    ("bench", "ttft"): "eccache bench ttft --model Qwen/Qwen2.5-VL-7B-Instruct --media clip.mp4 "
    "--connector eccache --connector ECExampleConnector -- --max-model-len 32768",
    ("doctor",): "eccache doctor -- MODEL --ec-transfer-config '{...}'",
}


@pytest.mark.parametrize("command", EXAMPLES)
@pytest.mark.parametrize("width", [30, 80, 200])
def test_examples_can_be_pasted(command: tuple[str, ...], width: int) -> None:
    """A shell reads the words that were meant, and no option is broken at its hyphens."""
    said = CliRunner().invoke(main, [*command, "--help"], terminal_width=width).stdout
    (example,) = re.findall(r"^ +(eccache (?:.*\\\n)*.*)$", said, re.MULTILINE)
    assert shlex.split(EXAMPLES[command]) == shlex.split(example.replace("\\\n", ""))
    assert "\b" not in said
