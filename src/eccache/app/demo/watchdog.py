"""Ends a server's process group when the process that started the server is gone.

A server outlives a killed parent; two of them fill a small machine. This file runs as a program of
its own, isolated and without third-party imports. Its standard input is a pipe that nobody writes
to: it ends with the parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE_SECONDS = 10.0


def main() -> None:
    """Wait for the end of standard input, then end the group named by the first argument."""
    group = int(sys.argv[1])
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.2)
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
