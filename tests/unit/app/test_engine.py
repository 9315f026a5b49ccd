"""The cache as a library: what was put comes back, and everything else is a counted miss."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

from eccache.adapters.buffers import PooledAllocator
from eccache.adapters.memory import MemoryStore
from eccache.adapters.torch import TorchFramework
from eccache.app.engine import ECCacheEngine
from eccache.app.stats import CacheStats
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import ClosedError, StoreFault
from eccache.domain.frame import Frame
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.host_framework import Staged
from eccache.ports.storage import ReadLease, StoreStats
from tests.unit.app.engines import LONG, engine_over, flip_a_bit, memory_store
from tests.unit.wrapped_store import WrappedStore

OUTPUT = torch.arange(12, dtype=torch.bfloat16).reshape(4, 3)


def stored(
    cache: ECCacheEngine[torch.Tensor], mm_hash: str = "h", tensor: torch.Tensor = OUTPUT
) -> None:
    """Put and wait."""
    assert cache.put(mm_hash, tensor)
    assert cache.flush(LONG)


def outcomes(stats: CacheStats) -> dict[str, int]:
    """The counters of gets that are not zero."""
    names = ("hits", "misses", "corrupt", "errors", "timeouts")
    return {name: getattr(stats, name) for name in names if getattr(stats, name)}


def test_what_was_put_comes_back() -> None:
    """Dtype, shape and bits are those that were put, and the counts say what happened."""
    with engine_over(memory_store()) as cache:
        assert cache.get("h") is None
        stored(cache)
        found = cache.get("h", num_tokens=4)
        assert found is not None
        assert torch.equal(OUTPUT, found)
        assert OUTPUT.dtype == found.dtype
        stats = cache.stats()
    assert {"hits": 1, "misses": 1} == outcomes(stats)
    assert (1, 1, 0, 0) == (stats.puts, stats.stored, stats.rejected, stats.failed_puts)
    assert (24, 4096 + 24) == (stats.bytes_read, stats.bytes_written)
    assert (1, 4096 + 24) == (stats.entries, stats.bytes_stored)


def test_what_comes_back_is_private() -> None:
    """A caller may write into a tensor it got; the next one is as it was put."""
    with engine_over(memory_store()) as cache:
        stored(cache)
        first = cache.get("h")
        assert first is not None
        first.zero_()
        second = cache.get("h")
        assert second is not None
        assert torch.equal(OUTPUT, second)


def test_another_revision_or_dtype_is_a_miss() -> None:
    """Identity and encoder dtype are part of what must match."""
    store = memory_store()
    with engine_over(store, closes_store=False) as cache:
        stored(cache)
    for revision, dtype in (("b", "bfloat16"), ("a", "float16")):
        with engine_over(store, closes_store=False, revision=revision, dtype=dtype) as cache:
            assert cache.get("h") is None
            assert {"misses": 1} == outcomes(cache.stats())


def test_another_number_of_rows_is_a_miss_and_the_next_put_replaces() -> None:
    """A clip that became longer under the same id is never served short."""
    longer = torch.ones(638, 3, dtype=torch.bfloat16)
    with engine_over(memory_store()) as cache:
        stored(cache)
        assert cache.get("h", num_tokens=638) is None
        stored(cache, tensor=longer)
        found = cache.get("h", num_tokens=638)
        assert found is not None
        assert torch.equal(longer, found)
        assert {"hits": 1, "misses": 1} == outcomes(cache.stats())


def test_a_second_put_of_the_same_entry_is_already_present() -> None:
    """The first of equal puts is kept."""
    with engine_over(memory_store()) as cache:
        stored(cache)
        stored(cache)
        stats = cache.stats()
    assert (2, 1, 1) == (stats.puts, stats.stored, stats.already_present)


def test_a_flipped_bit_is_a_corrupt_miss_and_the_entry_is_out_of_sight() -> None:
    """Damage is counted once, and quarantined."""
    store = memory_store()
    with engine_over(store) as cache:
        stored(cache)
        flip_a_bit(store, cache.ref("h"), bit=4096 * 8 + 5)
        assert cache.get("h") is None
        assert not cache.contains("h")
        assert cache.get("h") is None
        assert {"corrupt": 1, "misses": 1} == outcomes(cache.stats())


def test_a_flipped_bit_is_corrupt_also_where_the_entry_cannot_go() -> None:
    """On a read-only mount damage is still told from faults, and the next reader is told too."""
    store = memory_store()
    with engine_over(ReadOnly(store)) as cache:
        stored(cache)
        flip_a_bit(store, cache.ref("h"), 4096 * 8)
        assert [None, None] == [cache.get("h"), cache.get("h")]
        assert {"corrupt": 2} == outcomes(cache.stats())


def test_inputs_that_collide_in_64_bits_are_never_each_others() -> None:
    """The full digest in the entry decides, and the entry of the other input stays."""
    with engine_over(memory_store()) as cache:
        stored(cache)
        real = cache.ref("h")

        def colliding(mm_hash: str) -> EntryRef:
            other = EntryRef.for_mm_hash(cache.namespace, "m", mm_hash, "bfloat16")
            return EntryRef(real.namespace, real.key, other.mm_digest)

        cache.ref = colliding  # type: ignore[method-assign]
        assert cache.contains("other")
        assert cache.get("other") is None
        cache.ref = lambda mm_hash: real  # type: ignore[method-assign]  # noqa: ARG005
        assert cache.get("h") is not None
        assert {"hits": 1, "misses": 1} == outcomes(cache.stats())


def test_contains_is_by_name_and_counts_nothing() -> None:
    """A question changes nothing."""
    with engine_over(memory_store()) as cache:
        assert not cache.contains("h")
        stored(cache)
        assert cache.contains("h")
        assert {} == outcomes(cache.stats())


def test_a_put_that_can_never_be_stored_is_true_and_counted() -> None:
    """Larger than the cap is not the caller's problem."""
    with engine_over(memory_store(capacity_nbytes=4096)) as cache:
        assert cache.put("h", OUTPUT)
        assert cache.flush(LONG)
        assert cache.get("h") is None
        stats = cache.stats()
    assert (1, 1, 0) == (stats.puts, stats.rejected, stats.stored)


def test_no_buffer_now_is_false_and_no_put() -> None:
    """Pressure is the one reason for False."""
    block = threading.Event()
    with engine_over(Blocked(memory_store(), "put", block), budget_nbytes=30) as cache:
        assert cache.put("one", OUTPUT)
        assert not cache.put("two", OUTPUT)
        block.set()
        assert cache.flush(LONG)
        assert cache.put("two", OUTPUT)
        assert cache.flush(LONG)
        assert 2 == cache.stats().puts


def test_a_borrowed_tensor_that_changes_is_dropped_and_counted() -> None:
    """Bytes that changed on their way are never an entry."""
    block = threading.Event()
    with engine_over(Blocked(memory_store(), "put", block)) as cache:
        tensor = OUTPUT.clone()
        assert cache.put("h", tensor, borrow=True)
        tensor.zero_()
        block.set()
        assert not cache.flush(LONG)
        assert cache.get("h") is None
        stats = cache.stats()
    assert (1, 0, 1) == (stats.puts, stats.stored, stats.failed_puts)


def test_a_borrowed_tensor_that_stays_is_stored() -> None:
    """Borrowing is the quick way, not another result."""
    with engine_over(memory_store()) as cache:
        tensor = OUTPUT.clone()
        assert cache.put("h", tensor, borrow=True)
        assert cache.flush(LONG)
        found = cache.get("h")
        assert found is not None
        assert torch.equal(tensor, found)


@pytest.mark.parametrize(
    ("fault", "unexpected", "line"),
    [
        (
            StoreFault("disk full", remedy="free space"),
            0,
            "engine.put.failed cause='[ECC-STORE] disk full Remedy: free space'",
        ),
        (OSError(5, "EIO"), 1, "writer.fault.absorbed error='OSError' cause='[Errno 5] EIO'"),
    ],
)
def test_a_put_that_fails_is_counted_and_the_next_one_works(
    caplog: pytest.LogCaptureFixture, fault: Exception, unexpected: int, line: str
) -> None:
    """It costs one entry. What a store says of itself is nothing that nobody expected."""
    with engine_over(Failing(memory_store(), "put", fault)) as cache:
        assert cache.put("h", OUTPUT)
        assert not cache.flush(LONG)
        stored(cache)
        stats = cache.stats()
        faults = cache._parts.telemetry.total("faults:writer")  # noqa: SLF001 - tests look behind
    assert (2, 1, 1) == (stats.puts, stats.stored, stats.failed_puts)
    assert unexpected == faults
    assert [line] == caplog.messages


@pytest.mark.parametrize("fault", [StoreFault("input/output error"), OSError(5, "EIO")])
def test_a_get_that_fails_is_an_error_and_a_miss(fault: Exception) -> None:
    """Whatever a store raises, the caller sees a miss."""
    with engine_over(Failing(memory_store(), "get", fault)) as cache:
        assert cache.get("h") is None
        assert cache.get("h") is None
        assert {"errors": 1, "misses": 1} == outcomes(cache.stats())


def test_a_get_that_hangs_is_a_timeout_and_a_miss() -> None:
    """A hung read costs its time limit; while threads hang, gets fail at once."""
    block = threading.Event()
    with engine_over(Blocked(memory_store(), "get", block), timeout_seconds=0.05) as cache:
        assert cache.get("h") is None
        assert cache.get("h") is None
        assert {"timeouts": 2} == outcomes(cache.stats())
        block.set()


@pytest.mark.parametrize("where", ["contains", "stats", "close", "put"])
def test_no_hang_of_the_store_reaches_the_caller(where: str) -> None:
    """Every other question to a store that hangs is answered too, `close` included."""
    block = threading.Event()
    cache = engine_over(Blocked(memory_store(), where, block), timeout_seconds=0.05)
    cache.put("h", OUTPUT)
    assert not cache.contains("other")
    assert 1 == cache.stats().puts
    cache.close()
    block.set()


def test_a_store_that_fails_at_everything_is_never_seen() -> None:
    """contains, stats and close absorb faults as well."""
    for where in ("contains", "stats", "close"):
        cache = engine_over(Failing(memory_store(), where, OSError(5, "EIO")))
        assert not cache.contains("h")
        assert StoreStats(0, 0).entries == cache.stats().entries
        cache.close()


def test_close_waits_for_accepted_puts_and_is_final() -> None:
    """Nothing accepted is lost; afterwards get and put say that it is closed."""
    store = memory_store()
    cache = engine_over(store, closes_store=False)
    for number in range(30):
        assert cache.put(f"h{number}", OUTPUT)
    cache.close()
    cache.close()
    assert 30 == store.stats().entries
    assert 30 == cache.stats().stored
    assert not cache.contains("h0")
    use: list[Callable[[], object]] = [lambda: cache.get("h0"), lambda: cache.put("h0", OUTPUT)]
    for call in use:
        with pytest.raises(ClosedError, match="open another"):
            call()


def test_a_put_that_close_overtakes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is accepted that nobody will store, and its buffer is given back."""
    cache = engine_over(memory_store())
    allocator = cache._parts.allocator  # noqa: SLF001 - tests look behind
    assert isinstance(allocator, PooledAllocator)
    stage = TorchFramework.stage

    def closing(self: TorchFramework, *args: Any, **kwargs: Any) -> Staged | None:  # noqa: ANN401
        cache.close()
        return stage(self, *args, **kwargs)

    monkeypatch.setattr(TorchFramework, "stage", closing)
    with pytest.raises(ClosedError):
        cache.put("h", OUTPUT)
    assert 0 == allocator.in_flight_nbytes
    assert 0 == cache.stats().puts


def test_without_a_thread_a_put_is_refused_and_the_next_one_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the limit of threads a put is False, not an exception, and keeps neither buffer nor `flush`."""

    def no_thread(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with engine_over(memory_store(), budget_nbytes=64) as cache:
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", no_thread)
            assert [False] * 9 == [cache.put("h", OUTPUT) for _ in range(9)]
            assert cache.get("h") is None
            assert not cache.contains("h")
        assert cache.flush(0)
        stored(cache)
        assert cache.contains("h")


def test_a_forked_process_gets_parts_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child nothing is used that a thread of the parent may hold, or should serve."""
    child = engine_over(memory_store())
    for made_anew, expected in ((None, False), (lambda: child._parts, True)):  # noqa: SLF001
        cache = engine_over(memory_store())
        cache._parts_of_process = attrs.evolve(cache._parts, made_anew=made_anew)  # noqa: SLF001
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: 1)
            assert expected == (cache._parts is child._parts_of_process)  # noqa: SLF001
            assert expected == (cache._parts is child._parts_of_process)  # noqa: SLF001
        cache._pid = os.getpid()  # noqa: SLF001
        cache.close()


def test_a_store_from_elsewhere_is_left_open() -> None:
    """Whoever opened a store closes it."""
    ours, theirs = CountingCloses(memory_store()), CountingCloses(memory_store())
    engine_over(ours, closes_store=True).close()
    engine_over(theirs, closes_store=False).close()
    assert (1, 0) == (ours.closes, theirs.closes)


@pytest.mark.parametrize("mm_hash", [None, 5, b"h"])
def test_an_id_that_is_no_text_is_a_type_error(mm_hash: object) -> None:
    """Ids are text; anything else is a mistake worth an exception."""
    with engine_over(memory_store()) as cache:
        uses: list[Callable[[], object]] = [
            lambda: cache.get(mm_hash),  # type: ignore[arg-type]
            lambda: cache.put(mm_hash, OUTPUT),  # type: ignore[arg-type]
            lambda: cache.contains(mm_hash),  # type: ignore[arg-type]
        ]
        for use in uses:
            with pytest.raises(TypeError, match="mm_hash is a str"):
                use()


def test_a_refused_tensor_is_a_type_error_and_no_put() -> None:
    """What can't be stored says so, and charges nothing."""
    with engine_over(memory_store()) as cache:
        with pytest.raises(TypeError, match="under its own id"):
            cache.put("h", (OUTPUT,))  # type: ignore[arg-type]
        assert 0 == cache.stats().puts


def test_the_line_of_a_stored_put_is_safe_to_log(caplog: pytest.LogCaptureFixture) -> None:
    """Control characters are escaped, and long ids cut."""
    with caplog.at_level("INFO", "eccache.test"), engine_over(memory_store()) as cache:
        stored(cache, "a\nb\x1b" + "c" * 200)
    (line,) = [m for m in caplog.messages if m.startswith("EC put")]
    expected = "a\\nb\\x1b" + "c" * 200
    assert f"EC put: stored 24 bytes for mm_hash={expected[:80]}" == line


class Blocked(WrappedStore):
    """A store that hangs at one verb until an event is set."""

    def __init__(self, store: MemoryStore, verb: str, let_go: threading.Event) -> None:
        super().__init__(store)
        self._verb = verb
        self._let_go = let_go

    def _wait(self, verb: str) -> None:
        if verb == self._verb:
            assert self._let_go.wait(LONG)

    def contains(self, ref: EntryRef) -> bool:
        """Hang, then pass on."""
        self._wait("contains")
        return super().contains(ref)

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Hang, then pass on."""
        self._wait("get")
        return super().get(ref, deadline=deadline)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Hang, then pass on."""
        self._wait("put")
        return super().put(ref, frame)

    def stats(self) -> StoreStats:
        """Hang, then pass on."""
        self._wait("stats")
        return super().stats()

    def close(self) -> None:
        """Hang, then pass on."""
        self._wait("close")
        super().close()


class Failing(WrappedStore):
    """A store that raises at the first call of one verb."""

    def __init__(self, store: MemoryStore, verb: str, fault: Exception) -> None:
        super().__init__(store)
        self._verb = verb
        self._fault = fault

    def _fail(self, verb: str) -> None:
        if verb == self._verb:
            self._verb = ""
            raise self._fault

    def contains(self, ref: EntryRef) -> bool:
        """Fail once, then pass on."""
        self._fail("contains")
        return super().contains(ref)

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> ReadLease | None:
        """Fail once, then pass on."""
        self._fail("get")
        return super().get(ref, deadline=deadline)

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Fail once, then pass on."""
        self._fail("put")
        return super().put(ref, frame)

    def stats(self) -> StoreStats:
        """Fail once, then pass on."""
        self._fail("stats")
        return super().stats()

    def close(self) -> None:
        """Fail once, then pass on."""
        self._fail("close")
        super().close()


class ReadOnly(WrappedStore):
    """A store from which nothing can be removed."""

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Fail."""
        msg = f"{ref.key} stays, whether {reason.value} or not"
        raise StoreFault(msg)


class CountingCloses(WrappedStore):
    """A store that counts how often it was closed."""

    closes = 0

    def close(self) -> None:
        """Count, then pass on."""
        self.closes += 1
        super().close()
