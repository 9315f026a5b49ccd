"""Proof, at start, that the workers of an engine can reach the memory of its scheduler.

A promised copy is a memory file of the scheduler's process, and a worker opens it as
`/proc/<pid>/fd/<n>`. That works for processes of one user, in one pid namespace, of one booted kernel.
A worker can't be asked at start, but it can be found: each worker listens on a socket in the kernel's
abstract namespace, whose name both sides derive from what vLLM gave to this engine alone. The scheduler
connects to each. The kernel then tells it the worker's process and user, as no file could; nothing is
left behind when a process ends, and no thread is needed, since a connection stands as soon as it is in
the backlog.

One connection is kept. A worker that closes its socket thereby tells its scheduler, at once and without
a message, that what both relied on has ended; so does a worker that dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from eccache.adapters.vllm.ranks import Rank
from eccache.domain.errors import ConfigError

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)
_BACKLOG: Final = 8


def engine_token(vllm_config: Any) -> str:
    """Return a name for this engine that its scheduler and all its workers derive alike.

    vLLM draws `instance_id` when the configuration is made and copies it into every process of the
    engine; data-parallel replicas share it and differ in their index.
    """
    transfer = vllm_config.ec_transfer_config
    parallel = vllm_config.parallel_config
    parts = (
        vllm_config.instance_id,
        transfer.engine_id,
        getattr(parallel, "data_parallel_index", 0),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class Beacon:
    """A worker's sign of life, for as long as it is open.

    Args:
        token: of the engine.
        rank: of the worker in its engine.

    Raises:
        ConfigError: another process uses the name.
    """

    def __init__(self, token: str, rank: Rank) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(_address(token, rank))
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self._socket.close()
            msg = f"{rank} could not announce itself to its scheduler: {error}."
            raise ConfigError(
                msg,
                remedy="allow abstract unix sockets in the container, and start one engine once.",
            ) from error

    def close(self) -> None:
        """Go out, and let whoever watches see it. Idempotent, never raises."""
        self.blink()
        self._socket.close()

    def blink(self) -> None:
        """Go out for those who watch now, who see it; be lit for whoever looks next. Never raises.

        Connections are shut down one by one: a child process may have inherited the socket, and a
        connection that only lies in the backlog would outlive its closing.
        """
        with contextlib.suppress(OSError):
            self._socket.settimeout(0)
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    connection.shutdown(socket.SHUT_RDWR)


class BeaconWatch:
    """The scheduler's view of one worker's beacon. Used by one thread.

    Args:
        token: of the engine.
        rank: of the worker.

    Raises:
        ConfigError: there is no such beacon.
    """

    def __init__(self, token: str, rank: Rank) -> None:
        self._address = _address(token, rank)
        try:
            self._socket = self._connected()
        except OSError as error:
            msg = f"the scheduler can't watch over its worker {rank}: {error}."
            raise ConfigError(msg, remedy=_REMEDY) from error

    def is_lit(self) -> bool:
        """Return whether the worker still shows its beacon: one system call, about 1 µs."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def blinked(self) -> bool:
        """Return whether the beacon went out since this was last asked; watch it again if it is lit."""
        if self.is_lit():
            return False
        with contextlib.suppress(OSError):
            watched = self._connected()
            self._socket.close()
            self._socket = watched
        return True

    def close(self) -> None:
        """Look away. Idempotent."""
        self._socket.close()

    def _connected(self) -> socket.socket:
        with contextlib.ExitStack() as undo:
            made = undo.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            )
            made.settimeout(0)
            made.connect(self._address)
            undo.pop_all()
        return made


def prove_reachable(token: str, ranks: Iterable[Rank]) -> None:
    """Require that every rank's process is one that can open this process's memory files.

    Args:
        token: of the engine.
        ranks: all ranks of the engine.

    Raises:
        ConfigError: names the rank and what is different.
    """
    for rank in ranks:
        try:
            pid, uid = _peer(_address(token, rank))
        except OSError as error:
            msg = (
                f"the scheduler found no worker {rank} on its host ({error}), so that worker "
                "could not reach promised copies."
            )
            raise ConfigError(msg, remedy=_REMEDY) from error
        if uid != os.geteuid():
            msg = f"the worker {rank} runs under uid {uid}, the scheduler under {os.geteuid()}."
            raise ConfigError(msg, remedy=_REMEDY)
        if not _shares_pid_namespace(pid):
            msg = f"the worker {rank} is in another pid namespace than the scheduler."
            raise ConfigError(msg, remedy=_REMEDY)


_REMEDY: Final = (
    "run all ranks of an engine on one host, in one container and under one user "
    "(--nnodes 1, no remote Ray workers)."
)


def _address(token: str, rank: Rank) -> str:
    return f"\0eccache/{token}/{rank.pipeline}.{rank.context}.{rank.tensor}"


def _peer(address: str) -> tuple[int, int]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(0)  # a full backlog is an answer too, and not one to wait for
        probe.connect(address)
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


def _shares_pid_namespace(pid: int) -> bool:
    """Return whether *pid* sees the process numbers that this one sees; 0 is one that can't be seen."""
    if pid == 0:
        return False
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False
