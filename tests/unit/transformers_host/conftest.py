"""A cache on disk, and a count of encoder runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest
import torch

import eccache
from eccache.app.bootstrap import open_cache
from eccache.app.engine import ECCacheEngine


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """Every test but those about gradients runs without, as inference does."""
    with torch.no_grad():
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tiny tensors are computed by one thread; a second one would only wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ECCacheEngine[torch.Tensor]]:
    """An open cache in an empty folder."""
    config = eccache.CacheConfig(local_disk=str(tmp_path / "ec"), max_local_disk_size=1.0)
    with open_cache(config, model="tiny", encoder_dtype="float32") as opened:
        yield opened


@pytest.fixture
def count_runs() -> Iterator[Callable[[torch.nn.Module, str], list[int]]]:
    """Count forward calls of one module of a model, in this thread.

    From outside: a hook, or a method that counts, would be another model to the cache.
    """
    counted: list[tuple[torch.nn.Module, CodeType, list[int]]] = []

    def watch(model: torch.nn.Module, tower: str) -> list[int]:
        module = model.get_submodule(tower)
        counted.append((module, type(module).forward.__code__, [0]))
        return counted[-1][2]

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            for module, code, runs in counted:
                if frame.f_code is code and frame.f_locals.get("self") is module:
                    runs[0] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    yield watch
    sys.setprofile(before)
