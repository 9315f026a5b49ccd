"""Reading entries to see whether they are what they were."""

from __future__ import annotations

import errno
import os
from typing import Final

from eccache.adapters.disk.upkeep.walk import EntryFile
from eccache.domain.entry_format import (
    FrameError,
    FrameFault,
    FrameHasher,
    bounded_block_nbytes,
    parse_header,
)
from eccache.domain.file_name import SUFFIX
from eccache.ports.file_operations import FileOperations

PIECE_NBYTES: Final = 2 << 20
_GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})


class GoneError(Exception):
    """The entry was evicted, removed or replaced meanwhile."""


class EntryReader:
    """Reads entries piece by piece into one buffer, so that memory is bounded whatever a file says.

    Not for several threads.

    Args:
        files: file operations.
    """

    def __init__(self, files: FileOperations) -> None:
        self._files = files
        self._buffer = memoryview(bytearray(PIECE_NBYTES))

    def check(self, file: EntryFile) -> None:
        """Read the entry in *file* and require that it is whole, and what its place says it is.

        Raises:
            FrameError: it is damaged, or another's.
            OSError: it can't be read.
            GoneError: it is not there any more.
        """
        try:
            descriptor = self._files.open(file.path)
        except OSError as error:
            if error.errno in _GONE:
                raise GoneError from error
            raise
        try:
            status = self._files.descriptor_status(descriptor)
            if status.st_ino != file.status.st_ino:
                raise GoneError
            self._check(file, descriptor, status)
        finally:
            self._files.close(descriptor)

    def _check(self, file: EntryFile, descriptor: int, status: os.stat_result) -> None:
        frame_nbytes = status.st_size
        piece = self._read(descriptor, 0)
        block_nbytes = bounded_block_nbytes(piece[:8], frame_nbytes)
        block = bytes(piece[:block_nbytes])
        hasher = FrameHasher()
        done = 0
        while piece.nbytes:
            hasher.update(piece)
            done += piece.nbytes
            piece = self._read(descriptor, done)
        if not hasher.matches():
            raise FrameError(FrameFault.DIGEST)
        header = parse_header(block, frame_nbytes)
        if (header.namespace, header.key_name) != (file.namespace, file.name.removesuffix(SUFFIX)):
            raise FrameError(FrameFault.IDENTITY, "it is of another name than its file")

    def _read(self, descriptor: int, offset: int) -> memoryview:
        done = 0
        while done < PIECE_NBYTES:
            read = self._files.read(descriptor, self._buffer[done:], offset + done)
            if read == 0:
                break
            done += read
        return self._buffer[:done]
