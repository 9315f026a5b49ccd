"""What the pages say of files, commands and settings is there, and what they show can be copied."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from eccache.app.cli import main
from eccache.app.config import load_config
from eccache.domain.policy import BypassReason

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("*.md")), *sorted(ROOT.glob("README.md"))]
_SOURCE = re.compile(r"`((?:app|adapters|domain|ports|testing)/[\w/]+(?:\.py|/))`")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_TRANSFER = re.compile(r"--ec-transfer-config[= ]'?(\{.*?\}\}?)'?(?:\s|$)", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language that a page shows."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for name, text in found if name == language]


def commands(page: Path) -> Iterator[list[str]]:
    """Every call of `eccache` that a page shows, in its blocks and in its sentences, as arguments."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page, "shell"):
        for line in re.split(r"\n(?! )", block):
            words = shlex.split(line, comments=True)
            if words[:1] == ["eccache"]:
                yield words[1:]
    for line in re.findall(r"`eccache ([^`]+)`", _BLOCK.sub("", text)):
        yield shlex.split(line)


def rejection(arguments: list[str]) -> str:
    """Why the command line would not take *arguments*; empty if it would."""
    name, *rest = arguments
    if name.startswith("-") or name in {"COMMAND", "bench"}:  # bench has a page of its own
        return ""
    command = main.get_command(click.Context(main), name)
    if command is None:
        return f"there is no command {name}"
    with contextlib.suppress(click.exceptions.Exit):
        try:
            command.make_context(name, list(rest))
        except click.UsageError as wrong:
            return wrong.format_message()
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    """A reader who follows a page into the code finds what it names."""
    named = set(_SOURCE.findall(page.read_text(encoding="utf-8")))
    missing = {name for name in named if not (ROOT / "src" / "eccache" / name).exists()}
    assert set() == missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_a_page_shows_is_one(page: Path) -> None:
    """Whoever copies a call of `eccache` is not told that there is no such option."""
    wrong = {" ".join(call): why for call in commands(page) if (why := rejection(call))}
    assert {} == wrong


def test_a_command_that_is_none_is_found() -> None:
    """The check above sees a wrong command, option and value."""
    assert rejection(["sweep"])
    assert rejection(["gc", "--aggressive"])
    assert rejection(["verify", "--subset", "8/7"])
    assert "" == rejection(["verify", "--subset", "1/7", "--repair"])
    calls = list(commands(DOCS / "cli.md"))
    assert ["verify", "--subset", "1/7", "--repair"] in calls
    assert ["bench"] in list(commands(DOCS / "monitoring.md"))


def test_every_transfer_configuration_that_a_page_shows_works() -> None:
    """It is JSON, names the connector, and its settings are settings."""
    seen = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _TRANSFER.finditer(re.sub(r"\s+", " ", text)):
            document = json.loads(match[1])
            assert "ECCacheConnector" == document["ec_connector"], page.name
            assert (
                document.get("ec_connector_module_path", "eccache.app.vllm") == "eccache.app.vllm"
            )
            load_config(document.get("ec_connector_extra_config", {}), environ={})
            seen += 1
    assert seen >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_yaml_that_a_page_shows_is_yaml(page: Path) -> None:
    """A manifest can be copied."""
    for block in blocks(page, "yaml"):
        assert yaml.safe_load(block)


def test_the_manifest_is_a_servers() -> None:
    """Its environment holds settings, and its mounts have volumes."""
    (manifest,) = blocks(DOCS / "containers.md", "yaml")
    pod = yaml.safe_load(manifest)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    load_config(environ={entry["name"]: entry["value"] for entry in container["env"]})
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert volumes == {mount["name"] for mount in container["volumeMounts"]}


def test_every_reason_for_a_bypass_is_explained() -> None:
    """An operator who sees a label of the metric finds it in troubleshooting."""
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    counted = {reason.value for reason in BypassReason}
    for source in (ROOT / "src" / "eccache" / "app").rglob("*.py"):
        counted |= set(re.findall(r'"bypassed", reason="(\w+)"', source.read_text("utf-8")))
    assert len(counted) > len(BypassReason)
    assert set() == {reason for reason in counted if f"| `{reason}` |" not in text}
