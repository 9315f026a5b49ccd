"""The native store: the directory is the database."""

from __future__ import annotations

import contextlib
import random
import stat
import threading
from collections.abc import Iterator
from typing import Final

from eccache.adapters.disk.faults import FULL, store_fault
from eccache.adapters.disk.layout import (
    NOT_THERE,
    is_entry,
    namespaces,
    physical_nbytes,
    scan_if_there,
    shard_of,
    shards,
)
from eccache.adapters.disk.lease import FileLease
from eccache.adapters.disk.namespace_file import NAME, namespace_text
from eccache.adapters.disk.parts import DiskParts
from eccache.adapters.disk.policy import DiskPolicy
from eccache.adapters.disk.root import open_root
from eccache.adapters.disk.switch import is_switched_off, switched_off_cause, switched_off_remedy
from eccache.adapters.disk.upkeep.walk import remove_empty_directories
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.file_name import SUFFIX
from eccache.domain.frame import Frame, is_kept
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.ports.clock import Clock
from eccache.ports.file_operations import FileOperations
from eccache.ports.storage import EntryInfo, StoreStats
from eccache.ports.telemetry import Telemetry

_SMALL_NBYTES: Final = 8 << 20
"""Up to here a hand-over to another thread, 50 to 150 us where that has to be woken, is worth to be saved."""


class DiskStore:
    """Implements `ports.storage.EntryStore` under one directory, shared by every process that opens it.

    Holds no descriptor and no lock on a file between calls. Nothing here holds the GIL while it waits
    for the medium.

    Args:
        root: absolute path of the directory; made if missing.
        policy: bounds and modes.
        files: file operations.
        clock: for times of last use.
        telemetry: takes warnings.
        namespace: described in words beside its entries once there are some; None: no description.
        rng: draws what eviction looks at.

    Raises:
        ConfigError: the root is no directory, can't be made, or belongs to someone else.
    """

    def __init__(
        self,
        root: str,
        *,
        policy: DiskPolicy,
        files: FileOperations,
        clock: Clock,
        telemetry: Telemetry,
        namespace: Namespace | None = None,
        rng: random.Random | None = None,
    ) -> None:
        parts = DiskParts.assemble(
            root, policy=policy, files=files, clock=clock, telemetry=telemetry, rng=rng
        )
        open_root(parts.layout, files, parts.directories, policy, parts.notices)
        self._parts = parts
        self._files = files
        self._layout = parts.layout
        self._namespace = namespace
        self._rejected = 0
        self._quarantined = 0
        self._removals_as_evictions = 0
        self._idle = threading.Condition()
        self._active_puts = 0
        self._closed = False

    @property
    def root(self) -> str:
        """The directory."""
        return self._layout.root

    @property
    def capacity_nbytes(self) -> int:
        """The cap."""
        return self._parts.policy.capacity_nbytes

    def contains(self, ref: EntryRef) -> bool:
        """Return whether there is a file of *ref*'s name: one system call."""
        return self._files.exists(self._layout.entry(ref))

    def get(self, ref: EntryRef, *, deadline: float | None = None) -> FileLease | None:  # noqa: ARG002
        """Lease the file of *ref*'s name, or None where there is none of ours.

        Raises:
            StoreFault: it can't be told, or not be opened.
        """
        try:
            return self._leased(self._layout.entry(ref))
        except OSError as error:
            raise store_fault("get", error) from error

    def cached_frame(self, ref: EntryRef) -> memoryview | None:
        """Map the file of *ref*'s name if it is small and nothing has to be waited for. Never raises.

        Returns:
            None: there is no such file, or `get` is to be asked: the bytes are not in memory, this use is
            to be noted, something is wrong.
        """
        try:
            descriptor = self._files.open(self._layout.entry(ref))
        except OSError:
            return None
        try:
            status = self._files.descriptor_status(descriptor)
            nbytes = status.st_size
            if (
                stat.S_ISREG(status.st_mode)
                and 0 < nbytes <= _SMALL_NBYTES
                and status.st_uid == self._files.user()
                and not self._parts.recency.is_due(status)
            ):
                return self._files.map_private(descriptor, nbytes, only_cached=True)
        except OSError:
            return None
        finally:
            with contextlib.suppress(OSError):
                self._files.close(descriptor)
        return None

    def put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        """Publish *frame* under *ref*'s name.

        A file that has the name is read and verified as a whole before it is kept. That costs
        a read for each put of what is stored already, which the background writer can afford, and it
        mends damage that no reader has met yet.

        Raises:
            StoreFault: it could not be stored; then nothing is visible and nothing left behind.
        """
        with self._active_put():
            try:
                return self._put(ref, frame)
            except OSError as error:
                if is_switched_off(self._files, self._layout):
                    raise StoreFault(
                        switched_off_cause(self._layout), remedy=switched_off_remedy(self._layout)
                    ) from error
                raise store_fault("put", error) from error

    def remove(self, ref: EntryRef, reason: RemoveReason) -> bool:
        """Take the file of *ref*'s name out of sight; True if there was one.

        Raises:
            StoreFault: it is there and could not be removed.
        """
        path = self._layout.entry(ref)
        try:
            if reason is RemoveReason.QUARANTINED:
                self._parts.quarantine.take(path)
            else:
                self._files.unlink(path)
        except OSError as error:
            if error.errno in NOT_THERE:
                return False
            if reason is RemoveReason.QUARANTINED:
                self._parts.notices.warn("store.entry.stays_damaged", path=path, cause=str(error))
            raise store_fault("remove", error) from error
        self._quarantined += reason is RemoveReason.QUARANTINED
        self._removals_as_evictions += reason is RemoveReason.EVICTED
        if reason is RemoveReason.QUARANTINED:
            self._parts.notices.warn("store.entry.quarantined", path=path)
        with contextlib.suppress(OSError):  # The rotation will come round to it.
            self._parts.accounting.rescan(shard_of(ref))
        return True

    def entries(self) -> Iterator[EntryInfo]:
        """Yield every entry of every namespace, one directory at a time."""
        for directory, fingerprint in self._shard_directories():
            with contextlib.suppress(OSError):
                for name, status in scan_if_there(self._files, directory):
                    if is_entry(name, status.st_mode):
                        yield EntryInfo(
                            namespace=fingerprint,
                            name=name.removesuffix(SUFFIX),
                            nbytes=physical_nbytes(status),
                            last_used_seconds=status.st_mtime,
                        )

    def stats(self) -> StoreStats:
        """Return what the accounting says of all processes, and what this instance did."""
        entries = nbytes = 0
        with contextlib.suppress(OSError):
            usage = self._parts.accounting.peek()
            if usage is not None:
                entries = sum(usage.entries)
                nbytes = sum(usage.nbytes) + self._parts.accounting.uncharted_nbytes()
        return StoreStats(
            entries=entries,
            nbytes=nbytes,
            capacity_nbytes=self._parts.policy.capacity_nbytes,
            evictions=self._parts.evictor.evictions + self._removals_as_evictions,
            rejected=self._rejected,
            quarantined=self._quarantined,
        )

    def close(self) -> None:
        """Wait for puts under way; nothing else is held. Leases stay valid. Idempotent."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: self._active_puts == 0)

    @contextlib.contextmanager
    def _active_put(self) -> Iterator[None]:
        with self._idle:
            if self._closed:
                raise StoreFault("the store is closed", remedy="open another one")
            self._active_puts += 1
        try:
            yield
        finally:
            with self._idle:
                self._active_puts -= 1
                self._idle.notify_all()

    def _put(self, ref: EntryRef, frame: Frame) -> PutOutcome:
        path = self._layout.entry(ref)
        if self._is_kept(path, ref, frame):
            return PutOutcome.ALREADY_PRESENT
        if not self._parts.admission.admit(frame.nbytes):
            self._rejected += 1
            return PutOutcome.REJECTED
        shard = shard_of(ref)
        self._publish_where_full(path, frame, shard)
        with contextlib.suppress(OSError):  # Words for people; the next put tries again.
            self._describe(ref)
        try:
            self._parts.admission.settle(shard)
        except OSError as error:
            self._parts.notices.warn("store.accounting.failed", cause=str(error))
        return PutOutcome.STORED

    def _publish_where_full(self, path: str, frame: Frame, shard: int) -> None:
        """Publish, and should the file system be full all the same, make room and try again.

        It has a quota that it tells nobody of, or somebody else is filling it up; or there is no room for
        another file, then what eviction frees is not enough where it leaves a directory behind.
        """
        reliefs = iter((self._evicted, self._without_empty_directories))
        while True:
            try:
                return self._publish(path, frame, shard)
            except OSError as error:
                if error.errno not in FULL or not any(relief(frame.nbytes) for relief in reliefs):
                    raise

    def _evicted(self, nbytes: int) -> bool:
        return self._parts.admission.evict(nbytes)

    def _without_empty_directories(self, _: int) -> bool:
        return remove_empty_directories(self._files, self._layout) > 0

    def _publish(self, path: str, frame: Frame, shard: int) -> None:
        accounting = self._parts.accounting
        try:
            self._parts.publisher.publish(
                path, frame, lambda nbytes: accounting.charge(shard, nbytes, 1)
            )
        except OSError:
            with contextlib.suppress(OSError):  # It may have been charged.
                accounting.rescan(shard)
            raise

    def _leased(self, path: str) -> FileLease | None:
        try:
            descriptor = self._files.open(path)
        except OSError as error:
            if error.errno in NOT_THERE:
                return None
            raise
        try:
            status = self._files.descriptor_status(descriptor)
            lease = FileLease(self._files, descriptor, status.st_size, self._parts.notices)
        except BaseException:
            self._files.close(descriptor)
            raise
        if not stat.S_ISREG(status.st_mode):
            lease.close()
            return None
        self._parts.recency.touch(descriptor, status)
        return lease

    def _is_kept(self, path: str, ref: EntryRef, frame: Frame) -> bool:
        if not self._files.exists(path):
            return False
        try:
            lease = self._leased(path)
            if lease is None:
                return False
            with contextlib.closing(lease):
                kept = lease.nbytes == frame.nbytes and is_kept(lease.view(), ref, frame)
                if kept:
                    self._parts.publisher.secure(lease.descriptor, path)
                return kept
        except (OSError, StoreFault):
            return False  # What can't be read is worth replacing.

    def _describe(self, ref: EntryRef) -> None:
        """Write down what the namespace is, unless that is done."""
        if self._namespace is None or ref.namespace != self._namespace.fingerprint:
            return
        path = f"{self._layout.namespace(ref.namespace)}/{NAME}"
        if not self._files.exists(path):
            text = namespace_text(self._namespace)
            self._parts.publisher.publish_bytes(path, memoryview(text))

    def _shard_directories(self) -> Iterator[tuple[str, str]]:
        with contextlib.suppress(OSError):
            for fingerprint in namespaces(self._files, self._layout):
                for index in shards(self._files, self._layout, fingerprint):
                    yield self._layout.shard(fingerprint, index), fingerprint
