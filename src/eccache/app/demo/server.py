"""A real vLLM OpenAI server as a child process: started, watched, and always ended."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import attrs

from eccache.app.demo import torch_shim, watchdog
from eccache.app.demo.metrics import Metrics

Progress: TypeAlias = Callable[[str], None]

HOST = "127.0.0.1"
POLL_SECONDS = 0.25
PROGRESS_SECONDS = 5.0
TAIL_LINES = 40
ERROR_LINE = re.compile(r"^(.*\] )?(?P<error>[\w.]*(Error|Exception): .+)$", re.MULTILINE)
ADDRESS_TAKEN = "ddress already in use"

MILESTONES = (
    ("Resolved architecture", "reading the model's configuration"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Loading weights took", "weights loaded"),
    ("init engine", "engine ready"),
    ("Starting vLLM server", "opening the HTTP port"),
)
"""Text of vLLM's log, and what to tell a person who waits."""

SMALL_MODEL_ARGUMENTS = (
    *("--dtype", "bfloat16"),
    "--enforce-eager",  # compiling costs more than a small model gains
    *("--max-model-len", "4096"),
    *("--kv-cache-memory-bytes", str(64 << 20)),  # the default is a share of the machine's memory
    "--disable-uvicorn-access-log",
)
"""For a server of a model that `build_model` made: starts quickly, serves like any other."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
    "PYTHONUNBUFFERED": "1",
}


class ServerError(RuntimeError):
    """The server did not start, or is gone; the message has the cause and the last log lines."""


@attrs.frozen(kw_only=True)
class ServerSettings:
    """What to start.

    Attributes:
        model: Folder or name of the model.
        log_file: Where the server's output goes; a second start appends.
        arguments: Further arguments of vLLM's server.
        environment: Further environment variables; they win over `ENVIRONMENT`.
        python_path: Folders put first on `PYTHONPATH` of every process of the server.
        start_timeout_seconds: How long the start may take.
        stop_timeout_seconds: How long an orderly stop may take before the processes are killed.
    """

    model: str
    log_file: Path
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    python_path: Sequence[str] = ()
    start_timeout_seconds: float = attrs.field(default=300.0, validator=attrs.validators.gt(0))
    stop_timeout_seconds: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))


class VllmServer:
    """One vLLM server on a free loopback port, in a process group of its own.

    A context manager: entering starts the server and waits until it is healthy, leaving ends every
    process of it. Not thread-safe; requests may come from any thread.
    """

    def __init__(self, settings: ServerSettings, progress: Progress | None = None) -> None:
        """Remember what to start.

        Args:
            settings: What to start.
            progress: Called with one line of text at each step of the start; at least every few seconds.
        """
        self.settings = settings
        self._progress: Progress = progress or (lambda _line: None)
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log_start = 0

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def url(self) -> str:
        """Address of the server, without a path."""
        return f"http://{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the API process, which is also the id of the process group.

        Raises:
            ServerError: The server is not running.
        """
        if self._process is None:
            raise ServerError(self._failure("the server was not started"))
        return self._process.pid

    def command(self) -> list[str]:
        """The command line of the server on its present port."""
        return [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self.settings.model, "--host", HOST, "--port", str(self._port)),
            *self.settings.arguments,
        ]

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ServerError: It ended, or took too long.
        """
        if self._process is not None:
            return
        for last_attempt in (False, False, True):
            self._port = free_port()
            try:
                self._launch()
                self._wait_until_healthy()
            except ServerError:
                port_was_taken = ADDRESS_TAKEN in self.log()  # by another process, in between
                self.stop()
                if last_attempt or not port_was_taken:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """End every process of the server; harmless when there is none.

        First by SIGTERM to the API process, which ends the others; what is then left of the group is killed.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.settings.stop_timeout_seconds)
        # The engine and its workers end a little later than the API process; a cache of theirs still writes.
        end = time.monotonic() + self.settings.stop_timeout_seconds
        while _lives(process.pid) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def is_alive(self) -> bool:
        """Whether the API process runs and answers its health check, which also asks the engine."""
        if self._process is None or self._process.poll() is not None:
            return False
        try:
            self._get("/health", timeout_seconds=10)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def metrics(self) -> Metrics:
        """The server's present counters."""
        return Metrics.parse(self._get("/metrics", timeout_seconds=30))

    def log(self) -> str:
        """What the server has written since its last start."""
        with self.settings.log_file.open("rb") as stream:
            stream.seek(self._log_start)
            return stream.read().decode(errors="replace")

    def _get(self, path: str, *, timeout_seconds: float) -> str:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=timeout_seconds)
        with contextlib.closing(connection):
            connection.request("GET", path)
            reply = connection.getresponse()
            body = reply.read().decode()
        if reply.status != http.client.OK:
            raise http.client.HTTPException(f"{path}: status {reply.status}")
        return body

    def _launch(self) -> None:
        log_file = self.settings.log_file
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                start_new_session=True,
            )
        self._watchdog = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, "-I", watchdog.__file__, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        """Environment variables of the server's processes."""
        folders = [*self.settings.python_path, *filter(None, [os.environ.get("PYTHONPATH")])]
        shim = torch_shim.environment(tuple(folders))
        return dict(os.environ) | ENVIRONMENT | shim | dict(self.settings.environment)

    def _wait_until_healthy(self) -> None:
        process = self._process
        if process is None:
            return
        begin = time.monotonic()
        told = begin
        waiting_for = list(MILESTONES)
        while not self.is_alive():
            now = time.monotonic()
            if process.poll() is not None:
                raise ServerError(
                    self._failure(f"vLLM ended with exit code {process.returncode} while starting")
                )
            if now - begin > self.settings.start_timeout_seconds:
                raise ServerError(self._failure(f"vLLM did not start within {now - begin:.0f} s"))
            if reached := [line for mark, line in waiting_for if mark in self.log()]:
                waiting_for = [pair for pair in waiting_for if pair[1] not in reached]
                self._progress(f"vLLM: {reached[-1]} ({now - begin:.0f} s)")
                told = now
            elif now - told > PROGRESS_SECONDS:
                self._progress(f"vLLM: still starting ({now - begin:.0f} s)")
                told = now
            time.sleep(POLL_SECONDS)
        self._progress(f"vLLM: serving on {self.url} ({time.monotonic() - begin:.0f} s)")

    def _failure(self, what: str) -> str:
        log_file = self.settings.log_file
        if not log_file.exists():
            return what
        log = self.log()
        # The first error is the cause; vLLM's last line only says that there is one.
        cause = f": {first.group('error')}" if (first := ERROR_LINE.search(log)) else ""
        tail = "\n".join(log.splitlines()[-TAIL_LINES:])
        return f"{what}{cause}\nThe whole log is in {log_file}, its end:\n{tail}"


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


def _lives(group: int) -> bool:
    """Whether a process of *group* still runs; a zombie that nobody reaps does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                return True
    return False
