"""File operations that fail where a test wants them to."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

from eccache.ports.file_operations import FileOperations


def intercepted(files: FileOperations, before: Callable[[str], None]) -> FileOperations:
    """Return *files* with *before* called ahead of every operation, with the operation's name.

    What *before* raises is what the operation raises, except where an operation never does.
    """
    return cast("FileOperations", _Intercepted(files, before))


class _Intercepted:
    def __init__(self, files: FileOperations, before: Callable[[str], None]) -> None:
        self._files = files
        self._before = before

    def exists(self, path: str) -> bool:
        try:
            self._before("exists")
        except OSError:
            return False
        return self._files.exists(path)

    def close(self, descriptor: int) -> None:
        self._files.close(descriptor)  # A `close` that fails has closed all the same.
        self._before("close")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any operation
        operation = getattr(self._files, name)

        def call(*args: object, **options: object) -> object:
            self._before(name)
            return operation(*args, **options)

        return call


class FailingAt:
    """Fails one operation: for `intercepted`.

    Args:
        step: which one, from 0.
        number: with which errno.

    Attributes:
        operation: the name of the one that failed; None until then.
    """

    def __init__(self, step: int, number: int) -> None:
        self._left = step
        self._number = number
        self.operation: str | None = None

    def __call__(self, operation: str) -> None:
        """Count an operation; raise if it is the one."""
        self._left -= 1
        if self._left == -1:
            self.operation = operation
            raise OSError(self._number, os.strerror(self._number))


def failing(files: FileOperations, *operations: str, number: int) -> FileOperations:
    """Return *files* of which *operations* always fail with errno *number*."""

    def before(operation: str) -> None:
        if operation in operations:
            raise OSError(number, os.strerror(number))

    return intercepted(files, before)


class _ShortWriting(_Intercepted):
    def write(self, descriptor: int, data: memoryview, offset: int) -> int:
        return self._files.write(descriptor, data[: max(1, data.nbytes // 2)], offset)

    def read(self, descriptor: int, target: memoryview, offset: int) -> int:
        return self._files.read(descriptor, target[: max(1, target.nbytes // 2)], offset)


def short(files: FileOperations) -> FileOperations:
    """Return *files* that write and read half of what they are asked to."""
    return cast("FileOperations", _ShortWriting(files, lambda _: None))


class _Featureless(_Intercepted):
    def allocate(self, descriptor: int, nbytes: int) -> bool:
        return False

    def map_private(
        self, descriptor: int, nbytes: int, *, only_cached: bool = False
    ) -> memoryview | None:
        return None

    def lock(self, descriptor: int) -> bool:
        return True


def featureless(files: FileOperations) -> FileOperations:
    """Return *files* that can't allocate or map, and whose locks lock nothing."""
    return cast("FileOperations", _Featureless(files, lambda _: None))
