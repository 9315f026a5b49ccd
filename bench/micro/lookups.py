"""`contains`, and what the scheduler asks in every step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import SimpleNamespace

from bench.contest import Contender, compete
from bench.micro import ours, peers, serving
from bench.micro.serving import Connectors, make_request, store_pictures
from bench.rows import Row, beside, within
from bench.setting import Setting

CALLS = 2000


def rows(setting: Setting) -> Iterator[Row]:
    """Measure the questions that move no bytes."""
    yield from _contains(setting)
    yield from _scheduler(setting)


def _contains(setting: Setting) -> Iterator[Row]:
    tensor = setting.sizes[0].tensor()
    with ours.opened(setting.folder / "contains") as cache, peers.lmcache_engine(0.25) as lmcache:
        ours.stored(cache, "id", tensor)
        lmcache.put("id", tensor)
        store = cache._parts.store
        ref = cache.ref("id")
        samples = compete(
            [
                Contender("hit", lambda: cache.contains("id"), calls=CALLS),
                Contender("miss", lambda: cache.contains("absent"), calls=CALLS),
                Contender("probe", lambda: store.contains(ref), calls=CALLS),
                Contender("LMCache hit", lambda: lmcache.contains("id"), calls=CALLS),
                Contender("LMCache miss", lambda: lmcache.contains("absent"), calls=CALLS),
            ],
            setting.rounds(40),
        )
    yield within(samples, "hit", operation="contains, hit", at_most_seconds=5e-6)
    yield within(samples, "miss", operation="contains, miss", at_most_seconds=3e-6)
    yield beside(samples, "hit", "LMCache hit", operation="contains, hit")
    yield beside(samples, "miss", "LMCache miss", operation="contains, miss")
    yield beside(samples, "probe", "LMCache hit", operation="scheduler's probe of a file")


def _scheduler(setting: Setting) -> Iterator[Row]:
    """The connector's scheduler side as vLLM calls it, in a step with a request that decodes."""
    with contextlib.closing(Connectors(setting.folder / "connector")) as connectors:
        store_pictures(connectors, [1])
        hooks = connectors.scheduler
        decoding = make_request(1, answer_tokens=99, name="decoding")
        waiting = make_request(1, answer_tokens=99, name="waiting")
        end = time.monotonic() + 30
        while not (
            hooks.ensure_cache_available(waiting, 0) and hooks.has_cache_item(serving.digest(1))
        ):
            if time.monotonic() > end:
                raise RuntimeError("the stored entry was not promised")
            time.sleep(0.001)
        ready, absent = serving.digest(1), serving.digest(2)
        computed = serving.PROMPT_TOKENS
        samples = compete(
            [
                Contender(
                    "ensure",
                    lambda: hooks.ensure_cache_available(decoding, computed),
                    calls=CALLS,
                ),
                Contender(
                    "has (absent)",
                    lambda: hooks.has_cache_item(absent),
                    before=lambda: hooks.ensure_cache_available(waiting, 0),
                    calls=CALLS,
                ),
                Contender(
                    "has (ready)",
                    lambda: hooks.has_cache_item(ready),
                    before=lambda: hooks.ensure_cache_available(waiting, 0),
                    calls=CALLS,
                ),
            ],
            setting.rounds(40),
        )
        nothing = SimpleNamespace(free_encoder_mm_hashes=())
        samples_of_plan = compete(
            [Contender("plan", lambda: hooks.build_connector_meta(nothing), calls=CALLS)],
            setting.rounds(40),
        )
    yield within(
        samples, "ensure", operation="ensure_cache_available, nothing to do", at_most_seconds=1e-6
    )
    for name in ("has (absent)", "has (ready)"):
        yield within(samples, name, operation=f"has_cache_item{name[3:]}", at_most_seconds=0.5e-6)
    yield Row(
        operation="build_connector_meta, nothing to do", measured=samples_of_plan.median("plan")
    )
