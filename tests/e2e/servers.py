"""Real vLLM servers for the end-to-end tests: described by value, shared among tests, always ended."""

import contextlib
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from eccache.app.demo.client import Answer, ChatClient, Question
from eccache.app.demo.metrics import Metrics
from eccache.app.demo.plugin import lay_out_plugin
from eccache.app.demo.server import SMALL_MODEL_ARGUMENTS, ServerSettings, VllmServer
from tests.e2e import encoder_count
from tests.e2e.encoder_count import EncoderRun

MODEL_NAME = "tiny"
NO_PREFIX_CACHING = "--no-enable-prefix-caching"


@attrs.frozen(kw_only=True)
class Connector:
    """A connector and where it stores, as a value.

    Attributes:
        root: Value of `local_disk`.
        role: `ec_both`, `ec_producer` or `ec_consumer`.
        extra: Further pairs of `ec_connector_extra_config`.
        name: Class of the connector.
        module: Module of the class; None for one of vLLM's own.
    """

    root: Path
    role: str = "ec_both"
    extra: tuple[tuple[str, Any], ...] = ()
    name: str = "ECCacheConnector"
    module: str | None = "eccache.app.vllm"

    def argument(self) -> str:
        """Value of `--ec-transfer-config`."""
        config: dict[str, Any] = {"ec_connector": self.name, "ec_role": self.role}
        if self.module is not None:
            config["ec_connector_module_path"] = self.module
        config["ec_connector_extra_config"] = {"local_disk": str(self.root)} | dict(self.extra)
        return json.dumps(config)


@attrs.frozen(kw_only=True)
class ServerSpec:
    """A server as a value: two tests that ask for an equal one share it.

    Attributes:
        connector: None: a server without any, whose answers are the reference.
        arguments: Further arguments of vLLM.
        prefix_caching: Off by default, else vLLM skips the encoder by itself on a repeated prompt.
        tensor_parallel: Worker processes that split the model.
        environment: Further environment variables.
        python_path: Folders first on `PYTHONPATH`, for instance one with a plugin of the test.
    """

    connector: Connector | None = None
    arguments: tuple[str, ...] = ()
    prefix_caching: bool = False
    tensor_parallel: int = 1
    environment: tuple[tuple[str, str], ...] = ()
    python_path: tuple[str, ...] = ()

    def without_connector(self) -> "ServerSpec":
        """The reference server of this one."""
        return attrs.evolve(self, connector=None)

    def command_line(self) -> tuple[str, ...]:
        """Arguments of vLLM's server, without model and port."""
        arguments = [*SMALL_MODEL_ARGUMENTS, "--served-model-name", MODEL_NAME]
        if not self.prefix_caching:
            arguments.append(NO_PREFIX_CACHING)
        if self.tensor_parallel > 1:
            arguments += ["--tensor-parallel-size", str(self.tensor_parallel)]
        if self.connector is not None:
            arguments += ["--ec-transfer-config", self.connector.argument()]
        return (*arguments, *self.arguments)

    def variables(self) -> dict[str, str]:
        """Environment variables beside those that every server gets."""
        variables = dict(self.environment)
        if (
            self.tensor_parallel > 1
        ):  # one core for each rank, as vLLM's CPU back end wants it named
            cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
            ranks = itertools.islice(cores, self.tensor_parallel)
            variables["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(core) for core in ranks)
        return variables


class Served:
    """A running server with a client, and the record of its encoder's runs."""

    def __init__(self, server: VllmServer, runs_file: Path) -> None:
        """Wrap *server*, which runs and has written its encoder's runs so far to *runs_file*."""
        self.server = server
        self.client = ChatClient(server.url, MODEL_NAME)
        self._runs_file = runs_file
        self._start_up_runs = len(encoder_count.read_runs(runs_file))

    def ask(self, question: Question) -> Answer:
        """Ask one question and wait for the answer."""
        return self.client.ask(question)

    def answers(self, questions: Sequence[Question]) -> list[str]:
        """Ask one after the other, and return the texts."""
        return [self.ask(question).text for question in questions]

    def encoder_runs(self) -> list[EncoderRun]:
        """Runs of the encoder since the server became healthy; dummy runs of the start are left out."""
        return encoder_count.read_runs(self._runs_file)[self._start_up_runs :]

    def metrics(self) -> Metrics:
        """The server's present counters."""
        return self.server.metrics()

    def log(self) -> str:
        """What the server has written since it started."""
        return self.server.log()


class ServerPool:
    """Starts servers on request, keeps a few for other tests to share, and ends them all."""

    def __init__(self, model: Path, folder: Path, *, capacity: int = 2) -> None:
        """Start nothing yet.

        Args:
            model: Folder of the model that every server serves.
            folder: Where logs and records go.
            capacity: Servers that may run at once; the one unused for longest makes room.
        """
        self._model = model
        self._folder = folder
        self._capacity = capacity
        self._plugin = lay_out_plugin(encoder_count.PLUGIN, folder / "plugin")
        self._running: dict[ServerSpec, Served] = {}  # the most recently used last
        self._number = itertools.count()

    def get(self, spec: ServerSpec) -> Served:
        """A live server equal to *spec*: one that runs already, or else a new one."""
        served = self._running.pop(spec, None)
        if served is not None and not served.server.is_alive():
            served.server.stop()
            served = None
        if served is None:
            served = self._start(spec)
        self._running[spec] = served
        return served

    def restart(self, spec: ServerSpec) -> Served:
        """A new server equal to *spec*; one that runs already is stopped in order first."""
        self.stop(spec)
        return self.get(spec)

    def stop(self, spec: ServerSpec) -> None:
        """Stop the server equal to *spec*, if it runs."""
        served = self._running.pop(spec, None)
        if served is not None:
            served.server.stop()

    def close(self) -> None:
        """Stop every server."""
        with contextlib.ExitStack() as stack:
            for served in self._running.values():
                stack.callback(served.server.stop)
        self._running.clear()

    def new_server(self, spec: ServerSpec) -> tuple[VllmServer, Path]:
        """A server that is not started and not shared, and the file for its encoder's runs.

        For a test of the start itself; the test stops it.
        """
        number = next(self._number)
        runs_file = self._folder / f"server-{number}.encoder-runs"
        settings = ServerSettings(
            model=str(self._model),
            log_file=self._folder / f"server-{number}.log",
            arguments=spec.command_line(),
            environment=spec.variables() | {encoder_count.FILE_VARIABLE: str(runs_file)},
            python_path=(*spec.python_path, str(self._plugin)),
        )
        return VllmServer(settings), runs_file

    def _start(self, spec: ServerSpec) -> Served:
        while len(self._running) >= self._capacity:
            self.stop(next(iter(self._running)))
        server, runs_file = self.new_server(spec)
        server.start()
        return Served(server, runs_file)
