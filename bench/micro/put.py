"""Writing: how long the caller is held up, and when the entry can be seen."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

from bench.contest import Contender, compete
from bench.micro import ours, peers
from bench.rows import Row, at_most_times, beside, times_faster, within
from bench.setting import Setting
from bench.sizes import EntrySize

BORROW_SECONDS = 50e-6
COPY_FACTOR = 1.3
VISIBLE_FACTOR = 1.25
LMCACHE_FACTOR = 1.3


def rows(setting: Setting) -> Iterator[Row]:
    """Measure `put` of every size."""
    for size in setting.sizes:
        yield from _blocked(setting, size)
    for size in setting.sizes:
        yield from _visible(setting, size)


class _HeldWriter:
    """Keeps the background writer from writing while a caller is timed: what is measured is the caller."""

    def __init__(self) -> None:
        self._gate = threading.Event()

    def __call__(self) -> bool:
        """The job that holds a writer's thread."""
        return self._gate.wait(60)

    def open(self) -> None:
        """Let the writer go."""
        self._gate.set()


def _blocked(setting: Setting, size: EntrySize) -> Iterator[Row]:
    tensor = size.tensor()
    touched = tensor.clone()
    ids = itertools.count()
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(
            ours.opened(setting.folder / f"put-{size.rows}", writer_threads=1)
        )
        lmcache = stack.enter_context(peers.lmcache_engine(max(0.25, 3 * size.nbytes / (1 << 30))))
        writer = cache._parts.writer
        held: list[_HeldWriter] = []

        def hold() -> None:
            held.append(_HeldWriter())
            writer.submit(held[-1])

        def let_go() -> None:
            held.pop().open()
            cache.flush(120)

        samples = compete(
            [
                Contender(
                    "put(borrow=True)",
                    lambda: cache.put("borrowed", tensor, borrow=True),
                    before=hold,
                    after=let_go,
                ),
                Contender("put", lambda: cache.put("copied", tensor), before=hold, after=let_go),
                Contender("copy into touched memory", lambda: touched.copy_(tensor)),
                Contender("LMCache put", lambda: lmcache.put(f"id-{next(ids)}", tensor)),
            ],
            setting.rounds(size.rounds),
        )
    yield within(
        samples,
        "put(borrow=True)",
        operation="put(borrow=True), caller blocked",
        size=size.label,
        at_most_seconds=BORROW_SECONDS,
    )
    yield at_most_times(
        samples,
        "put",
        "copy into touched memory",
        operation="put that copies, caller blocked",
        size=size.label,
        times=COPY_FACTOR,
    )
    for name in ("put(borrow=True)", "put"):
        operation = f"{name if 'borrow' in name else 'put that copies'}, caller blocked"
        yield beside(samples, name, "LMCache put", operation=operation, size=size.label)


def _visible(setting: Setting, size: EntrySize) -> Iterator[Row]:
    from safetensors.torch import save_file

    from eccache.adapters.torch.memory import bytes_of

    tensor = size.tensor()
    data = bytes_of(tensor)
    folder = setting.folder / f"visible-{size.rows}"
    bare = setting.folder / "bare.bin"
    saved = setting.folder / "saved.safetensors"
    example_folder = setting.folder / f"example-{size.rows}"
    example = peers.ExampleConnector(example_folder)
    with contextlib.ExitStack() as stack:
        cache = stack.enter_context(ours.opened(folder))
        lmcache = stack.enter_context(
            peers.lmcache_engine(
                max(0.25, 3 * size.nbytes / (1 << 30)), setting.folder / f"lmcache-{size.rows}"
            )
        )

        def remove(path: Path) -> None:
            path.unlink(missing_ok=True)

        def remove_ours() -> None:
            for path in ours.entry_files(folder):
                path.unlink()

        def lmcache_put() -> None:
            lmcache.put("id", tensor)
            peers.wait_until_on_disk(lmcache, "id")

        samples = compete(
            [
                Contender(
                    "put + flush", lambda: ours.stored(cache, "id", tensor), after=remove_ours
                ),
                Contender(
                    "allocate and write",
                    lambda: peers.write_allocated(bare, data),
                    after=lambda: remove(bare),
                ),
                Contender(
                    "LMCache put to file",
                    lmcache_put,
                    after=lambda: peers.forget(lmcache, "id"),
                ),
                Contender(
                    "safetensors save",
                    lambda: save_file({"ec_cache": tensor}, saved),
                    after=lambda: remove(saved),
                ),
                Contender(
                    "ECExampleConnector save",
                    lambda: example.save("id", tensor),
                    after=lambda: remove(example_folder / "id" / "encoder_cache.safetensors"),
                ),
            ],
            setting.rounds(size.rounds),
        )
    name = "put to visible, checksum included"
    if size.nbytes > 64 << 20:
        yield at_most_times(
            samples,
            "put + flush",
            "allocate and write",
            operation=name,
            size=size.label,
            times=VISIBLE_FACTOR,
        )
        yield times_faster(
            samples,
            "put + flush",
            "LMCache put to file",
            operation=name,
            size=size.label,
            times=LMCACHE_FACTOR,
        )
    else:
        for peer in ("allocate and write", "LMCache put to file"):
            yield beside(samples, "put + flush", peer, operation=name, size=size.label)
    for peer in ("safetensors save", "ECExampleConnector save"):
        yield beside(samples, "put + flush", peer, operation=name, size=size.label)
