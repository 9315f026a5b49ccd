"""Closing waits for what was accepted."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eccache.domain.errors import StoreFault
from eccache.domain.frame import FreshFrame
from eccache.domain.tensor_spec import TensorSpec
from eccache.testing.frames import frame_of, ref_of
from tests.unit.disk.places import disk_store, put, read

REF = ref_of("an input")


class GatedFrame:
    """A frame whose header comes when it is let through."""

    def __init__(self, frame: FreshFrame) -> None:
        self._frame = frame
        self.spec: TensorSpec = frame.spec
        self.nbytes = frame.nbytes
        self.begun = threading.Event()
        self.gate = threading.Event()

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the pieces."""
        for offset, piece in self._frame.pieces():
            if offset == 0:
                self.begun.set()
                self.gate.wait()
            yield offset, piece


def test_close_waits_for_a_put_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When `close` returns, what a thread was writing when it began is there, whole."""
    store = disk_store(tmp_path)
    frame = GatedFrame(frame_of(REF))
    writer = threading.Thread(target=store.put, args=(REF, frame))
    writer.start()
    frame.begun.wait()
    wait_for = store._idle.wait_for  # noqa: SLF001 - its wait is what is tested

    def open_gate_and_wait(predicate: Callable[[], bool]) -> bool:
        frame.gate.set()
        return wait_for(predicate)

    monkeypatch.setattr(store._idle, "wait_for", open_gate_and_wait)  # noqa: SLF001
    store.close()
    try:
        assert read(disk_store(tmp_path), REF) is not None
    finally:
        frame.gate.set()
        writer.join()


def test_a_closed_store_takes_no_put(tmp_path: Path) -> None:
    """What comes too late is told so; reading needs nothing that was given back."""
    store = disk_store(tmp_path)
    put(store, REF)
    store.close()
    with pytest.raises(StoreFault, match="closed"):
        put(store, ref_of("too late"))
