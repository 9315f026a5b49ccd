"""Buffers of LMCache's pool: taken, filled, read and given back, whatever happens in between."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lmcache.v1.memory_management import MemoryObj
    from lmcache.v1.storage_backend.storage_manager import StorageManager

    from eccache.domain.frame import Frame


def take_buffer(storage: StorageManager, nbytes: int) -> MemoryObj | None:
    """Return a buffer of *nbytes* above 0 with one reference, the caller's; None if there is no room now.

    LMCache evicts from its memory for it, and does not wait.
    """
    import torch
    from lmcache.v1.memory_management import MemoryFormat

    return storage.allocate(
        torch.Size([nbytes]), torch.uint8, fmt=MemoryFormat.EC_TD, busy_loop=False
    )


def fill_buffer(buffer: MemoryObj, frame: Frame) -> None:
    """Write *frame* into *buffer*, without the GIL where it counts."""
    target = np.frombuffer(buffer.byte_array, dtype=np.uint8)
    for offset, piece in frame.pieces():
        np.copyto(target[offset : offset + piece.nbytes], np.frombuffer(piece, dtype=np.uint8))


def copy_out(buffer: MemoryObj) -> memoryview:
    """Return a private copy of *buffer*'s bytes, which outlives LMCache's pool."""
    source = np.frombuffer(buffer.byte_array, dtype=np.uint8)
    target = np.empty(source.nbytes, dtype=np.uint8)
    np.copyto(target, source)
    return target.data


def give_back(buffer: object) -> None:
    """Drop a reference to *buffer*; anything else than a buffer is let be."""
    from lmcache.v1.memory_management import MemoryObj

    if isinstance(buffer, MemoryObj):
        buffer.ref_count_down()


def give_back_lost(error: BaseException) -> int:
    """Give back the buffers that a failed read left in the frames of its traceback; return how many.

    A connector takes a buffer before it reads into it. Where the read fails, the exception keeps its
    frames alive, and they the buffer; a pool of seven is gone after seven bad values.
    """
    from lmcache.v1.memory_management import MemoryObj

    found: dict[int, MemoryObj] = {}
    for frame in _frames(error):
        for value in frame.f_locals.values():
            if isinstance(value, MemoryObj) and value.is_valid() and value.get_ref_count() > 0:
                found[id(value)] = value
    for buffer in found.values():
        buffer.ref_count_down()
    return len(found)


def _frames(error: BaseException) -> list[types.FrameType]:
    frames = []
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        pending += [link.__cause__, link.__context__]
        traceback = link.__traceback__
        while traceback is not None:
            frames.append(traceback.tb_frame)
            traceback = traceback.tb_next
    return frames
