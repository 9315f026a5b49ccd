"""Reading: page cache warm, and cold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import xxhash

from bench.contest import Contender, compete
from bench.micro import ours, peers
from bench.rows import Row, at_most_times, beside, times_faster, within
from bench.setting import Setting
from bench.sizes import EntrySize

WARM_FACTOR = 1.6
COLD_FACTOR = 1.15
LOOP: Final = 20
"""Gets of one sample, where what is measured is the number of steps and not what they find in the cache."""


def rows(setting: Setting) -> Iterator[Row]:
    """Measure `get` of every size beside everything that reads the same bytes."""
    for size in setting.sizes:
        yield from _warm(setting, size)
    for size in setting.sizes:
        yield from _cold(setting, size)


def _warm(setting: Setting, size: EntrySize) -> Iterator[Row]:
    from safetensors.torch import load_file, save_file

    from eccache.adapters.torch.memory import bytes_of

    tensor = size.tensor()
    data = bytes_of(tensor)
    touched = tensor.clone()
    folder = setting.folder / f"get-{size.rows}"
    plain = setting.folder / "plain.safetensors"
    save_file({"ec_cache": tensor}, plain)
    example = peers.ExampleConnector(setting.folder / "example")
    example.save("id", tensor)

    def load_and_clone() -> object:
        return load_file(plain)["ec_cache"].clone()

    with (
        ours.opened(folder) as cache,
        peers.lmcache_engine(max(0.25, 3 * size.nbytes / (1 << 30))) as lmcache,
    ):
        ours.stored(cache, "id", tensor)
        lmcache.put("id", tensor)
        samples = compete(
            [
                Contender("get", lambda: cache.get("id")),
                Contender("XXH3 pass", lambda: xxhash.xxh3_128_digest(data)),
                Contender("LMCache get (memory)", lambda: lmcache.get("id", "cpu")),
                Contender("torch.clone", tensor.clone),
                Contender("copy into touched memory", lambda: touched.copy_(tensor)),
                Contender("safetensors load", lambda: load_file(plain)),
                Contender("safetensors load + clone", load_and_clone),
                Contender("ECExampleConnector load", lambda: example.load("id", size.rows)),
                Contender(
                    "ECExampleConnector load + clone",
                    lambda: example.load("id", size.rows).clone(),
                ),
            ],
            setting.rounds(size.rounds),
        )
        in_a_loop = compete(
            [Contender("get", lambda: cache.get("id"), calls=LOOP)], setting.rounds(20)
        )
    name = "get, page cache warm"
    if size.nbytes < 1 << 20:
        loop = f"{name}, {LOOP} in a row"
        yield within(in_a_loop, "get", operation=loop, size=size.label, at_most_seconds=60e-6)
    if size.nbytes > 16 << 20:
        yield at_most_times(
            samples, "get", "XXH3 pass", operation=name, size=size.label, times=WARM_FACTOR
        )
        yield times_faster(
            samples, "get", "LMCache get (memory)", operation=name, size=size.label, times=4
        )
    else:
        yield beside(samples, "get", "XXH3 pass", operation=name, size=size.label)
        yield beside(samples, "get", "LMCache get (memory)", operation=name, size=size.label)
    for peer in (
        "torch.clone",
        "copy into touched memory",
        "safetensors load",
        "safetensors load + clone",
        "ECExampleConnector load",
        "ECExampleConnector load + clone",
    ):
        yield beside(samples, "get", peer, operation=name, size=size.label)


def _cold(setting: Setting, size: EntrySize) -> Iterator[Row]:
    tensor = size.tensor()
    folder = setting.folder / f"cold-{size.rows}"
    target = memoryview(bytearray(size.nbytes + 4096))
    name = "get, not in the page cache"
    with ours.opened(folder) as cache:
        ours.stored(cache, "id", tensor)
        (path,) = ours.entry_files(folder)
        buffer = target[: path.stat().st_size]

        def drop() -> None:
            peers.drop_from_page_cache(path)

        try:
            drop()
        except RuntimeError as error:
            setting.progress(str(error))
            return
        samples = compete(
            [
                Contender("get", lambda: cache.get("id"), before=drop),
                Contender(
                    "sequential read", lambda: peers.read_sequentially(path, buffer), before=drop
                ),
            ],
            setting.rounds(min(size.rounds, 40)),
        )
    if size.nbytes > 1 << 20:
        yield at_most_times(
            samples, "get", "sequential read", operation=name, size=size.label, times=COLD_FACTOR
        )
    else:
        yield beside(samples, "get", "sequential read", operation=name, size=size.label)
