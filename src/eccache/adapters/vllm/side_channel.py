"""A way for workers' reports where vLLM has none.

A worker's report travels with its step's output. For a server that only encodes, vLLM's first model
runner drops that output. There the report goes to the scheduler as a datagram, which neither side waits
for: a full inbox keeps it for the next step.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

from eccache.ports.lookup import WorkerReport

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)
_MAX_NBYTES: Final = 1 << 16


def output_is_dropped(vllm_config: Any) -> bool:
    """Return whether vLLM drops what the workers of this server report."""
    return bool(vllm_config.ec_transfer_config.is_encode_only) and not getattr(
        vllm_config, "use_v2_model_runner", False
    )


class ReportSender:
    """A worker's end. Used by one thread.

    Args:
        token: of the engine.
    """

    def __init__(self, token: str) -> None:
        self._address = _address(token)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's own

    def send(self, report: WorkerReport) -> bool:
        """Send *report*; False if nobody takes it now. Observations and acks are left out."""
        message = json.dumps([report.counters, sorted(report.made)]).encode()
        try:
            self._socket.sendto(message, self._address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Send no more. Idempotent."""
        self._socket.close()


class ReportReceiver:
    """The scheduler's end. Used by one thread. Receives nothing if another process has taken its name.

    Args:
        token: of the engine.
    """

    def __init__(self, token: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)  # noqa: FBT003 - the standard library's own
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with contextlib.suppress(OSError):
            self._socket.bind(_address(token))

    def receive(self) -> Iterator[WorkerReport]:
        """Yield what has arrived from processes of the same user. Never waits."""
        with contextlib.suppress(OSError):
            while True:
                message, ancillary, _, _ = self._socket.recvmsg(
                    _MAX_NBYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
                if _sender(ancillary) != os.geteuid():
                    continue
                with contextlib.suppress(ValueError, TypeError):  # not of ours, or cut off
                    counters, made = json.loads(message)
                    yield WorkerReport(counters=dict(counters), made=frozenset(made))

    def close(self) -> None:
        """Receive no more. Idempotent."""
        self._socket.close()


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """Return the user who sent a datagram, as the kernel says; names in this namespace are no secret."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            uid: int = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[1]
            return uid
    return None


def _address(token: str) -> str:
    return f"\0eccache/{token}/reports"
