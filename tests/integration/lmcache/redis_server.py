"""A Redis of the tests' own, on a loopback port that is free, ended by process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

START_SECONDS = 20.0


class RedisServer:
    """A real redis-server without persistence.

    Args:
        folder: for its log; it writes nothing else.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._log = folder / f"redis-{self.port}.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What LMCache connects to."""
        return f"redis://127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        """A client of the tests' own."""
        return redis.Redis(port=self.port, socket_timeout=10)

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = subprocess.Popen(
            ["redis-server", *options, "--logfile", str(self._log), "--dir", str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client().ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline, self._log.read_text(encoding="utf-8")
                assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
                select_seconds = 0.02
                signal.sigtimedwait([], select_seconds)
            else:
                return

    def freeze(self) -> None:
        """Let it answer nothing, with its connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, and wait for that."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)
