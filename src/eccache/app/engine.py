"""The cache as a library: put, get, contains.

The engine moves tensors between the host framework's port and the store's, verifies what it reads and
counts what happened. It never looks into a tensor.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

import attrs

from eccache.app.beside import Beside
from eccache.app.bounded_calls import BoundedCalls
from eccache.app.guard import CAUSE_CHARACTERS, guarded
from eccache.app.prompt_answers import PromptAnswers
from eccache.app.stats import CacheStats
from eccache.app.telemetry import LocalTelemetry
from eccache.app.verified_read import Reading, fault_outcome, read_verified
from eccache.app.writer import BackgroundWriter
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import ClosedError, StoreFault
from eccache.domain.frame import Frame, FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import LookupOutcome, PutOutcome
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.allocator import HostAllocator
from eccache.ports.clock import Clock
from eccache.ports.host_framework import HostFramework, Staged
from eccache.ports.storage import EntryStore, StoreStats
from eccache.ports.telemetry import Level

R = TypeVar("R")
T = TypeVar("T")
_DISPLAY_CHARACTERS = 80


@attrs.frozen(kw_only=True)
class EngineParts(Generic[T]):
    """What an engine is made of. The composition root fills it in.

    Attributes:
        store: where frames go.
        closes_store: whether the engine closes the store.
        host: the tensor framework.
        allocator: bounds the bytes in flight.
        telemetry: takes counts and events.
        clock: for deadlines and creation times.
        writer: carries out puts.
        calls: makes calls to the store that may hang.
        prompt: tells what can be told without waiting for anybody.
        made_anew: makes the same parts for a process that was forked, in which no thread of these runs and
            any lock may be held for ever. None: they are used as they are.
    """

    store: EntryStore
    closes_store: bool
    host: HostFramework[T]
    allocator: HostAllocator
    telemetry: LocalTelemetry
    clock: Clock
    writer: BackgroundWriter
    calls: BoundedCalls
    prompt: PromptAnswers = attrs.field(factory=PromptAnswers)
    made_anew: Callable[[], EngineParts[T]] | None = None


class SourceChangedError(StoreFault):
    """A borrowed tensor changed before it was stored."""

    code = "ECC-CHANGED"


class _WatchedFrame:
    """A frame that refuses to be completed if its source changed while the pieces went by."""

    def __init__(self, frame: Frame, staged: Staged) -> None:
        self._frame = frame
        self._staged = staged
        self.nbytes = frame.nbytes
        self.spec: TensorSpec = frame.spec

    def pieces(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the frame's pieces, the last one (the header) only if the source is unchanged."""
        for offset, piece in self._frame.pieces():
            if offset == 0 and not self._staged.unchanged():
                msg = "a tensor put with borrow=True was changed before it was stored"
                raise SourceChangedError(
                    msg, remedy="leave it unchanged until flush, or put a copy"
                )
            yield offset, piece


class ECCacheEngine(Generic[T]):
    """A cache of encoder outputs of one model. Any thread may call it; made by `open_cache`.

    In a process that was forked it is as one that was opened there: what the parent has put and not yet
    stored is the parent's, and counts begin at zero.

    Args:
        parts: what it is made of.
        namespace: entries of no other namespace are ever served.
        model: the model's name in keys.
        encoder_dtype: the encoder's dtype in keys, under torch's name.
        store_timeout_seconds: after this long a get is a timeout.
        close_timeout_seconds: `close` gives up on puts that make no progress for this long.
    """

    def __init__(
        self,
        parts: EngineParts[T],
        *,
        namespace: Namespace,
        model: str,
        encoder_dtype: str,
        store_timeout_seconds: float,
        close_timeout_seconds: float,
    ) -> None:
        self._parts_of_process = parts
        self._pid = os.getpid()
        self._forked = threading.Lock()
        self._namespace = namespace
        self._model = model
        self._dtype = encoder_dtype
        self._store_timeout_seconds = store_timeout_seconds
        self._close_timeout_seconds = close_timeout_seconds
        self._closed = False
        self._last_store_stats = StoreStats(0, 0)

    @property
    def _parts(self) -> EngineParts[T]:
        """The parts, of this process's own."""
        if self._pid != os.getpid():
            with self._forked:
                made_anew = self._parts_of_process.made_anew
                if self._pid != os.getpid() and made_anew is not None:
                    self._parts_of_process = made_anew()
                self._pid = os.getpid()
        return self._parts_of_process

    @property
    def namespace(self) -> Namespace:
        """What must be equal for entries to be shared."""
        return self._namespace

    def ref(self, mm_hash: str) -> EntryRef:
        """Return name and identity of the entry of input *mm_hash*.

        Raises:
            TypeError: *mm_hash* is not a str.
        """
        return EntryRef.for_mm_hash(self._namespace, self._model, mm_hash, self._dtype)

    def put(self, mm_hash: str, tensor: T, *, borrow: bool = False) -> bool:
        """Store *tensor* as the encoder output of *mm_hash*, in the background.

        Args:
            mm_hash: the input's id, any text.
            tensor: any dense tensor of rank 0 to 8, on any device, e.g. `[num_tokens, hidden_size]`.
            borrow: False: the bytes are copied before this returns, and the caller may change the
                tensor. True: nothing is copied, and the caller leaves it unchanged until `flush`; where
                a change can be seen the entry is dropped and counted.

        Returns:
            False if no buffer, or no thread, could be had now; nothing else. An entry that can never be
            stored (larger than the cap) is True, and counted as rejected.

        Raises:
            TypeError: *mm_hash* is not a str, or *tensor* not one dense tensor; says what to pass.
            ClosedError: after `close`.
        """
        return self.put_entry(self.ref(mm_hash), tensor, borrow=borrow)

    def put_entry(self, ref: EntryRef, tensor: T, *, borrow: bool = False) -> bool:
        """Store *tensor* as the entry of *ref*, which may be bound to a content; see `put`."""
        self._require_open()
        staged = self._parts.host.stage(tensor, self._parts.allocator, borrow=borrow)
        if staged is None:
            self._parts.telemetry.count("put_refused")
            return False
        if not self._parts.writer.submit(functools.partial(self._write, ref, staged)):
            staged.release()
            self._require_open()  # it may have been closed meanwhile
            self._parts.telemetry.count("put_refused")
            return False
        self._parts.telemetry.count("puts")
        return True

    def get(self, mm_hash: str, device: str = "cpu", *, num_tokens: int | None = None) -> T | None:
        """Return the tensor that was put as *mm_hash*, bit for bit, or None on a miss.

        Args:
            mm_hash: the input's id.
            device: where to build it, e.g. `"cpu"` or `"cuda:1"`. On the CPU nothing is copied: the
                tensor is a private mapping, which may be kept for ever and written to.
            num_tokens: rows that are needed; another number is a miss.

        Returns:
            None: a miss, for whatever reason; `stats` tells which.

        Raises:
            TypeError: *mm_hash* is not a str.
            ClosedError: after `close`.
        """
        self._require_open()
        ref = self.ref(mm_hash)
        reading = guarded(
            self._parts.telemetry, "get", lambda: self._read(ref), Reading(LookupOutcome.ERROR)
        )
        header, payload = reading.header, reading.payload
        if header is None or payload is None:
            self._parts.telemetry.count(reading.outcome.value)
            return None
        if num_tokens is not None and header.spec.rows != num_tokens:
            self._parts.telemetry.count(LookupOutcome.MISS.value)
            return None
        tensor = self._parts.host.build(header.spec, payload, str(device))
        self._parts.telemetry.count(LookupOutcome.HIT.value)
        self._parts.telemetry.count("bytes_read", payload.nbytes)
        return tensor

    def contains(self, mm_hash: str) -> bool:
        """Return whether something is stored under *mm_hash*'s name: advisory, unverified.

        Changes nothing on disk. A fault, also a store that hangs, is False.

        Raises:
            TypeError: *mm_hash* is not a str.
        """
        ref = self.ref(mm_hash)
        if self._closed:
            return False
        known = self._parts.prompt.contains(ref)
        if known is not None:
            return known
        return self._bounded("contains", lambda: self._parts.store.contains(ref), otherwise=False)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every accepted put is visible to every process.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Returns:
            True once all are; False if time ran out or one failed since the last flush.
        """
        return self._parts.writer.flush(timeout)

    def stats(self) -> CacheStats:
        """Return what this engine did since it was opened, and what its store holds."""
        telemetry = self._parts.telemetry
        store = self._last_store_stats if self._closed else self._refresh_store_stats()
        return CacheStats(
            **{outcome.value: telemetry.total(outcome.value) for outcome in LookupOutcome},
            puts=telemetry.total("puts"),
            rejected=telemetry.total(PutOutcome.REJECTED.value),
            evictions=store.evictions,
            bytes_read=telemetry.total("bytes_read"),
            bytes_written=telemetry.total("bytes_written"),
            entries=store.entries,
            bytes_stored=store.nbytes,
            stored=telemetry.total(PutOutcome.STORED.value),
            already_present=telemetry.total(PutOutcome.ALREADY_PRESENT.value),
            failed_puts=telemetry.total("failed_puts"),
        )

    def close(self) -> None:
        """Wait for accepted puts for as long as they make progress, then give everything back.

        Idempotent. Afterwards `get` and `put` raise `ClosedError`; tensors that were handed out stay
        valid.
        """
        if self._closed:
            return
        self._closed = True
        if not self._parts.writer.close(self._close_timeout_seconds):
            self._parts.telemetry.event(
                Level.WARNING, "engine.close.gave_up", pending=self._parts.writer.pending
            )
        self._refresh_store_stats()
        if self._parts.closes_store:
            self._bounded("close", self._parts.store.close, otherwise=None)
        self._parts.calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            msg = "the cache is closed"
            raise ClosedError(msg, remedy="open another one with open_cache")

    def _refresh_store_stats(self) -> StoreStats:
        self._last_store_stats = self._bounded(
            "stats", self._parts.store.stats, otherwise=self._last_store_stats
        )
        return self._last_store_stats

    def _read(self, ref: EntryRef) -> Reading:
        known = self._parts.prompt.read(ref)
        if known is not None:
            return known
        try:
            return self._parts.calls.call(
                lambda: read_verified(self._parts.store, ref), self._store_timeout_seconds
            )
        except StoreFault as fault:
            self._parts.telemetry.event(Level.WARNING, "engine.get.failed", cause=str(fault))
            return Reading(fault_outcome(fault))

    def _write(self, ref: EntryRef, staged: Staged) -> bool:
        """Carry out one accepted put; the writer's job. True if it did not fail."""
        outcome = guarded(
            self._parts.telemetry, "writer", lambda: self._stored(ref, staged), otherwise=None
        )
        staged.release()
        self._parts.telemetry.count("failed_puts" if outcome is None else outcome.value)
        return outcome is not None

    def _stored(self, ref: EntryRef, staged: Staged) -> PutOutcome | None:
        """Store; None, and a warning, if the store could not, which needs no report to anybody."""
        try:
            return self._store(ref, staged)
        except StoreFault as fault:
            self._parts.telemetry.event(
                Level.WARNING, "engine.put.failed", cause=str(fault)[:CAUSE_CHARACTERS]
            )
            return None

    def _store(self, ref: EntryRef, staged: Staged) -> PutOutcome:
        created = str(int(self._parts.clock.unix()))
        with Beside() as beside:
            frame = FreshFrame(ref, staged.spec, staged.pieces, {"created": created}, beside.run)
            outcome = self._parts.store.put(ref, _WatchedFrame(frame, staged))
        if outcome is PutOutcome.STORED:
            self._parts.telemetry.count("bytes_written", frame.nbytes)
            shown = ref.excerpt.encode("unicode_escape").decode("ascii")[:_DISPLAY_CHARACTERS]
            self._parts.telemetry.event(
                Level.INFO,
                "engine.put.stored",
                message=f"EC put: stored {staged.spec.nbytes} bytes for mm_hash={shown}",
            )
        return outcome

    def _bounded(self, where: str, function: Callable[[], R], *, otherwise: R) -> R:
        """Call the store within its time limit; a fault is *otherwise*."""
        return guarded(
            self._parts.telemetry,
            where,
            lambda: self._parts.calls.call(function, self._store_timeout_seconds),
            otherwise,
        )
