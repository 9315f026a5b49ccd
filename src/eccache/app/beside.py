"""Work that is done beside the thread that wants it, and never outlives what it works on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Beside:
    """Runs functions on threads of their own; all of them have returned when the `with` block ends.

    For a few long calls that release Python's lock, such as the hash of a whole tensor: a thread costs
    about 0.1 ms. Used by one thread.
    """

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for thread in self._threads:
            thread.join()

    def run(self, work: Callable[[], None]) -> Callable[[], None]:
        """Begin *work*, at once where the system has no thread for it.

        Returns:
            Waits until it is done, and raises what it raised.
        """
        faults: list[Exception] = []

        def run() -> None:
            try:
                work()
            except Exception as fault:  # noqa: BLE001 - raised again by whoever waits
                faults.append(fault)

        def wait() -> None:
            thread.join()
            for fault in faults:
                raise fault

        thread = threading.Thread(target=run, name="eccache-beside", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of processes, or the interpreter is ending
            work()
            return lambda: None
        self._threads.append(thread)
        return wait
