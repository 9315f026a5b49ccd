"""Trying a root out: does what a server will do work here?"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

from eccache.adapters.disk.layout import Layout, namespaces, parent
from eccache.adapters.disk.store import DiskStore
from eccache.domain.entry_format import FrameError, open_verified
from eccache.domain.entry_ref import EntryRef
from eccache.domain.errors import StoreFault
from eccache.domain.frame import FreshFrame
from eccache.domain.namespace import Namespace
from eccache.domain.outcomes import PutOutcome, RemoveReason
from eccache.domain.tensor_spec import TensorSpec
from eccache.ports.file_operations import FileOperations

_PAYLOAD = bytes(range(256)) * 64


@contextlib.contextmanager
def leaving_no_trace(root: str, files: FileOperations) -> Iterator[None]:
    """Take away what is made of a store's own places within the block, as far as nothing is in them.

    A server that began with them meanwhile makes them again, as it does after any cleaning.

    Args:
        root: the store's.
        files: file operations.
    """
    layout = Layout(root)
    places = (layout.temporary, layout.quarantine, layout.usage, layout.version)
    missing = [place for place in places if not files.exists(place)]
    try:
        yield
    finally:
        for place in missing:
            with contextlib.suppress(OSError):
                if place != layout.usage:
                    files.remove_directory(place)
                elif not namespaces(files, layout):  # else there is something to account for
                    files.unlink(place)


def try_out(root: str, store: DiskStore, files: FileOperations) -> None:
    """Store a small entry in *store*, read it back, verify it and remove it.

    It is in a namespace of its own, so that no server can meet it, and leaves nothing behind.

    Args:
        root: the store's.
        store: made without a namespace, so that it describes none.
        files: file operations.

    Raises:
        StoreFault: a step failed; says which.
    """
    namespace = Namespace.from_ingredients({"self-test": secrets.token_hex(8)})
    ref = EntryRef.for_mm_hash(namespace, "self-test", secrets.token_hex(8), "uint8")
    spec = TensorSpec("uint8", (len(_PAYLOAD),))
    frame = FreshFrame(ref, spec, memoryview(bytearray(_PAYLOAD)), {})
    try:
        outcome = store.put(ref, frame)
        if outcome is not PutOutcome.STORED:
            raise StoreFault(
                f"an entry of {frame.nbytes} bytes was {outcome.value}",
                remedy="free space, or raise max_local_disk_size",
            )
        _read_back(store, ref)
    finally:
        with contextlib.suppress(StoreFault):
            store.remove(ref, RemoveReason.REMOVED)
        shard = parent(Layout(root).entry(ref))
        with contextlib.suppress(OSError):
            files.remove_directory(shard)
            files.remove_directory(parent(shard))


def _read_back(store: DiskStore, ref: EntryRef) -> None:
    lease = store.get(ref)
    if lease is None:
        raise StoreFault("an entry that was just stored is not there")
    with contextlib.closing(lease):
        frame = lease.view()
    try:
        header = open_verified(frame, ref)
    except FrameError as error:
        raise StoreFault(f"an entry that was just stored is damaged: {error}") from error
    if bytes(frame[header.block_nbytes :]) != _PAYLOAD:
        raise StoreFault("an entry that was just stored has other bytes")
