"""What an entry says of itself, read from its first bytes."""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import unquote

import attrs

from eccache.adapters.disk.transfer import read_fully
from eccache.adapters.disk.upkeep.walk import EntryFile
from eccache.domain.entry_format import (
    EntryHeader,
    FrameError,
    FrameFault,
    bounded_block_nbytes,
    parse_header,
)
from eccache.domain.file_name import SUFFIX
from eccache.ports.file_operations import FileOperations
from eccache.ports.maintenance import StoredEntry

_LENGTH_NBYTES: Final = 8
_PARTS_OF_A_NAME: Final = 5
_YEAR_10000: Final = 253_402_300_800


def read_header(files: FileOperations, path: str) -> EntryHeader:
    """Return the header of the entry at *path*, parsed within its bounds and not verified.

    Raises:
        OSError: it can't be read.
        FrameError: it is no header.
    """
    descriptor = files.open(path)
    try:
        frame_nbytes = files.descriptor_status(descriptor).st_size
        length = _read(files, descriptor, _LENGTH_NBYTES)
        block = _read(files, descriptor, bounded_block_nbytes(length, frame_nbytes))
        return parse_header(block, frame_nbytes)
    finally:
        files.close(descriptor)


def listed_entry(file: EntryFile) -> StoredEntry:
    """Return the entry in *file* as its directory has it; nothing is read."""
    name = file.name.removesuffix(SUFFIX)
    return StoredEntry(
        namespace=file.namespace,
        name=name,
        path=file.path,
        nbytes=file.nbytes,
        last_used_seconds=file.status.st_mtime,
        model=model_of(name),
    )


def described_entry(files: FileOperations, entry: StoredEntry) -> StoredEntry:
    """Return *entry* with what its header says, or why that can't be read."""
    try:
        header = read_header(files, entry.path)
    except OSError as error:
        return attrs.evolve(entry, fault=f"can't be read: {error.strerror}")
    except FrameError as error:
        return attrs.evolve(entry, fault=str(error))
    return attrs.evolve(
        entry,
        dtype=header.spec.dtype,
        shape=header.spec.shape,
        mm_hash=header.excerpt,
        created_seconds=_unix_time(header.fields.get("created", "")),
    )


def _unix_time(text: str) -> float | None:
    """Return the time that an unverified header names; None for what is none, such as `nan` or `1e300`."""
    with contextlib.suppress(ValueError):
        seconds = float(text)
        if 0 <= seconds < _YEAR_10000:
            return seconds
    return None


def model_of(name: str) -> str:
    """Return the model in an entry's name, as far as a shortened name still has it."""
    parts = name.rsplit("@", _PARTS_OF_A_NAME - 1)
    return unquote(parts[0]) if len(parts) == _PARTS_OF_A_NAME else ""


def _read(files: FileOperations, descriptor: int, nbytes: int) -> memoryview:
    data = memoryview(bytearray(nbytes))
    if read_fully(files, descriptor, data, 0) < nbytes:
        raise FrameError(FrameFault.TRUNCATED, "it became shorter")
    return data
