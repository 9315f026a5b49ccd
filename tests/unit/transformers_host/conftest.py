"""A cache on disk, and a count of encoder runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
def count_runs(monkeypatch: pytest.MonkeyPatch) -> Callable[[torch.nn.Module, str], list[int]]:
    """Count forward calls of one module of a model, without a hook, which would be a reason to bypass."""

    def watch(model: torch.nn.Module, tower: str) -> list[int]:
        runs = [0]
        module = model.get_submodule(tower)
        stock = type(module).forward

        def counted(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            runs[0] += self is module
            return stock(self, *args, **kwargs)

        counted.__wrapped__ = stock  # type: ignore[attr-defined]
        monkeypatch.setattr(type(module), "forward", counted)
        return runs

    return watch
