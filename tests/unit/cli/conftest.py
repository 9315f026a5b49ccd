"""A real store with entries of two models, and the command line as a user calls it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from eccache.app.bootstrap.stores import open_store
from eccache.app.cli import main
from eccache.app.config import CacheConfig
from eccache.app.telemetry import LocalTelemetry
from eccache.domain.entry_ref import EntryRef
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.storage import EntryStore
from eccache.testing.clock import ManualClock

NOW = 1_800_000_000.0
DAY = 86_400.0

Invoke = Callable[..., Result]


@attrs.frozen
class Filled:
    """A store on disk, as servers left it.

    Attributes:
        root: its directory.
        alpha: a namespace with three entries.
        beta: a namespace with one entry.
        stores: what put them there, by fingerprint.
        clock: of the stores.
    """

    root: Path
    alpha: Namespace
    beta: Namespace
    stores: dict[str, EntryStore]
    clock: ManualClock

    def put(
        self, namespace: Namespace, mm_hash: str, rows: int, *, model: str = "org/alpha"
    ) -> Path:
        """Store an entry as a server would, and return its file."""
        ref = EntryRef.for_mm_hash(namespace, model, mm_hash, "bfloat16")
        spec = TensorSpec("bfloat16", (rows, 64))
        payload = memoryview(bytearray(mm_hash.encode() * spec.nbytes)[: spec.nbytes])
        created = str(int(self.clock.unix()))
        frame = FreshFrame(ref, spec, payload, {"created": created})
        before = set(self.root.rglob("*.safetensors"))
        assert PutOutcome.STORED is self.stores[namespace.fingerprint].put(ref, frame)
        (path,) = set(self.root.rglob("*.safetensors")) - before
        os.utime(path, (self.clock.unix(), self.clock.unix()))
        return path

    def has(self, namespace: Namespace, mm_hash: str, *, model: str = "org/alpha") -> bool:
        """Whether a server would find the entry."""
        ref = EntryRef.for_mm_hash(namespace, model, mm_hash, "bfloat16")
        return self.stores[namespace.fingerprint].contains(ref)


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    """Three entries of one model, one of another, each used a day after the one before."""
    root = tmp_path / "ec"
    clock = ManualClock(NOW - 4 * DAY)
    config = CacheConfig(local_disk=str(root), min_free_space_ratio=0.0)
    alpha = Namespace.from_ingredients({"model": "org/alpha", "revision": "one"})
    beta = Namespace.from_ingredients({"model": "org/beta", "revision": "two"})
    stores = {
        namespace.fingerprint: open_store(config, namespace, clock, LocalTelemetry(clock))
        for namespace in (alpha, beta)
    }
    store = Filled(root, alpha, beta, stores, clock)
    for number, rows in enumerate((100, 400, 200)):
        store.put(alpha, f"picture-{number}", rows)
        clock.advance(DAY)
    store.put(beta, "picture-9", 50, model="org/beta")
    return store


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Call `eccache` with arguments, in an environment that configures nothing."""
    for name in [name for name in os.environ if name.startswith(("ECCACHE_", "LMCACHE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("time.time", lambda: NOW)

    def call(*arguments: object, said: str | None = None) -> Result:
        return CliRunner().invoke(main, list(map(str, arguments)), input=said)

    return call


def document(result: Result) -> Any:  # noqa: ANN401 - whatever the command prints
    """The JSON that a command printed."""
    return json.loads(result.stdout)
