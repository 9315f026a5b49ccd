"""What an adapter consists of, as far as that is known to be what the workers loaded."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from vllm.lora.request import LoRARequest

from eccache.adapters.vllm.adapter_content import AdapterContents

LATER = 60.0
"""Seconds that a server starts after its adapters were written."""


def write_adapter(folder: Path, weights: bytes = b"weights") -> Path:
    """An adapter's files."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text('{"r": 8}')
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def request_of(folder: Path, name: str = "a", **more: bool) -> LoRARequest:
    """A request of the adapter in *folder*."""
    return LoRARequest(name, 1, str(folder), **more)


def settled(contents: AdapterContents, request: LoRARequest) -> str:
    """The digest, once it was read."""
    give_up_at = time.monotonic() + 20
    while not (digest := contents.of(request)):
        assert time.monotonic() < give_up_at
    return digest


def is_never_known(contents: AdapterContents, request: LoRARequest) -> bool:
    """Whether the digest stays unknown, also after whatever reads it has ended."""
    import threading

    contents.of(request)
    for thread in threading.enumerate():
        if thread.name == "eccache-adapter":
            thread.join(20)
    return contents.of(request) == ""


@pytest.fixture
def contents() -> AdapterContents:
    """Of a server that starts after every file of the test is written."""
    return AdapterContents(time.time() + LATER)


def test_an_adapter_is_its_content_not_its_name(contents: AdapterContents, tmp_path: Path) -> None:
    """Two names of one content are one adapter; one name of two contents is two."""
    first = write_adapter(tmp_path / "first")
    copied = Path(shutil.copytree(first, tmp_path / "copied"))
    other = write_adapter(tmp_path / "other", b"others!")
    assert settled(contents, request_of(first, "a")) == settled(contents, request_of(copied, "b"))
    assert settled(contents, request_of(first, "a")) != settled(contents, request_of(other, "a"))


def test_until_it_is_read_it_is_not_known(contents: AdapterContents, tmp_path: Path) -> None:
    """Nobody waits for it; the first requests are served without the cache."""
    request = request_of(write_adapter(tmp_path / "a", bytes(50_000_000)))
    assert "" == contents.of(request)
    assert settled(contents, request)


def _replace(folder: Path) -> None:
    write_adapter(folder, b"changed")


def _same_size_and_time(folder: Path) -> None:
    import os

    file = folder / "adapter_model.safetensors"
    before = file.stat()
    file.write_bytes(b"sthgiew")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _add(folder: Path) -> None:
    (folder / "new.safetensors").write_bytes(b"more")


CHANGES: list[Callable[[Path], None]] = [_replace, _same_size_and_time, _add, shutil.rmtree]


@pytest.mark.parametrize("change", CHANGES)
def test_an_adapter_that_changes_is_never_known_again(
    contents: AdapterContents, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Which of the contents the workers have loaded is their secret, even if the first one comes back."""
    folder = write_adapter(tmp_path / "a")
    request = request_of(folder)
    settled(contents, request)
    change(folder)
    assert "" == contents.of(request)
    write_adapter(folder)
    assert is_never_known(contents, request)


def test_an_adapter_that_came_after_the_start_is_not_known(tmp_path: Path) -> None:
    """It may have been loaded before it was last written."""
    contents = AdapterContents(time.time() - LATER)
    assert is_never_known(contents, request_of(write_adapter(tmp_path / "a")))


def test_an_adapter_that_changes_while_it_is_read_is_not_known(
    contents: AdapterContents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest would be of neither content."""
    folder = write_adapter(tmp_path / "a")

    def read(_: Path) -> str:
        _replace(folder)
        return "half of each"

    monkeypatch.setattr("eccache.adapters.vllm.adapter_content.content_digest", read)
    assert is_never_known(contents, request_of(folder))


@pytest.mark.parametrize("path", ["org/adapter-on-a-hub", "/nowhere", ""])
def test_what_is_no_local_folder_is_not_known(contents: AdapterContents, path: str) -> None:
    """An adapter from a hub, one made of tensors in memory."""
    request = SimpleNamespace(lora_path=path)
    assert is_never_known(contents, request)


def test_an_adapter_that_is_reloaded_in_place_is_not_known(
    contents: AdapterContents, tmp_path: Path
) -> None:
    """Its owner means to change it."""
    folder = write_adapter(tmp_path / "a")
    assert is_never_known(contents, request_of(folder, load_inplace=True))


def test_a_file_that_can_not_be_read_is_not_known(
    contents: AdapterContents, tmp_path: Path
) -> None:
    """Nor does it raise on the thread that reads."""
    folder = write_adapter(tmp_path / "a")
    (folder / "broken.safetensors").symlink_to(folder / "gone")
    assert is_never_known(contents, request_of(folder))
