"""No process of the demo outlives it, and a process that fails to start says why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eccache.app.demo import server as server_module
from eccache.app.demo import torch_shim, watchdog
from eccache.app.demo.server import ServerError, ServerSettings, VllmServer

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_the_watchdog_ends_the_group_when_its_input_ends() -> None:
    """A parent that is killed closes the pipe; the server must not be left running."""
    server = subprocess.Popen(SLEEP, start_new_session=True)
    guard = subprocess.Popen(
        [sys.executable, "-I", watchdog.__file__, str(server.pid)], stdin=subprocess.PIPE
    )
    assert server.poll() is None
    assert guard.stdin is not None
    guard.stdin.close()
    assert -signal.SIGTERM == server.wait(timeout=30)
    assert 0 == guard.wait(timeout=30)


def test_the_watchdog_is_content_when_the_group_is_gone() -> None:
    """It ends without an error."""
    server = subprocess.Popen(SLEEP, start_new_session=True)
    guard = subprocess.Popen(
        [sys.executable, "-I", watchdog.__file__, str(server.pid)], stdin=subprocess.PIPE
    )
    server.kill()
    server.wait()
    guard.communicate()
    assert 0 == guard.returncode


def fake_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str) -> VllmServer:
    """A server whose process runs *program* instead of vLLM."""
    monkeypatch.setattr(torch_shim, "broken_packages", tuple)
    monkeypatch.setattr(VllmServer, "command", lambda _server: [sys.executable, "-c", program])
    settings = ServerSettings(
        model="none", log_file=tmp_path / "log", start_timeout_seconds=3, stop_timeout_seconds=1
    )
    return VllmServer(settings)


def test_an_early_end_is_an_error_with_its_first_cause_and_the_end_of_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever reads the error needs no other file: a worker's error is said before vLLM's own last one."""
    program = """
print("(Worker pid=7) ERROR 11-30 [worker.py:1] app.errors.ConfigError: the cause; the remedy")
raise RuntimeError("Engine core initialization failed. See root cause above.")
"""
    server = fake_server(monkeypatch, tmp_path, program)
    with pytest.raises(ServerError) as caught:
        server.start()
    first, *rest = str(caught.value).splitlines()
    assert first.endswith(
        "exit code 1 while starting: app.errors.ConfigError: the cause; the remedy"
    )
    assert "RuntimeError: Engine core initialization failed. See root cause above." == rest[-1]


def test_a_lost_port_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Between choosing a port and binding it, another process may take it."""
    server = fake_server(
        monkeypatch, tmp_path, "import sys; sys.exit('[Errno 98] address already in use')"
    )
    with pytest.raises(ServerError):
        server.start()
    assert 3 == (tmp_path / "log").read_text().count("address already in use")


def test_a_stubborn_server_and_its_children_are_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SIGTERM is ignored by parent and child: both are gone all the same, within the time allowed."""
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    parent = f"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", {child!r}]).pid, flush=True)
time.sleep(600)
"""
    server = fake_server(monkeypatch, tmp_path, parent)
    with pytest.raises(ServerError, match="did not start"):
        server.start()
    child_pid = int((tmp_path / "log").read_text())
    end = time.monotonic() + 10
    while is_running(child_pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(child_pid)


def is_running(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_the_shim_comes_last_and_only_where_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose packages work runs without it."""
    monkeypatch.setattr(torch_shim, "broken_packages", lambda: ("torchvision", "torchaudio"))
    assert {
        "PYTHONPATH": f"/mine:{torch_shim.DIRECTORY}",
        torch_shim.BROKEN_PACKAGES: "torchvision,torchaudio",
    } == torch_shim.environment(("/mine",))
    monkeypatch.setattr(torch_shim, "broken_packages", tuple)
    assert {"PYTHONPATH": "/mine"} == torch_shim.environment(("/mine",))


def test_the_shim_hides_no_other_sitecustomize(tmp_path: Path) -> None:
    """The one that would have run without it runs too."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    path = os.pathsep.join([str(torch_shim.DIRECTORY), str(tmp_path)])
    ran = subprocess.run(
        [sys.executable, "-c", ""],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=True,
    )
    assert b"mine\n" == ran.stdout


def test_torchvision_imports_and_torchaudio_looks_absent_under_the_shim() -> None:
    """Where torchvision's import fails, it works; what the shim hides can't be imported by mistake."""
    broken = {*torch_shim.broken_packages(), "torchaudio"}
    program = (
        "import importlib.util, torchvision\n"
        "print(torchvision.__name__, importlib.util.find_spec('torchaudio'))"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(torch_shim.DIRECTORY),
        torch_shim.BROKEN_PACKAGES: ",".join(broken),
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "torchvision None\n" == ran.stdout


def test_a_server_that_was_not_started_has_no_pid(tmp_path: Path) -> None:
    """Stopping it is harmless."""
    server = VllmServer(ServerSettings(model="none", log_file=tmp_path / "log"))
    with pytest.raises(ServerError, match="not started"):
        _ = server.pid
    server.stop()
    assert not server.is_alive()
    assert server_module.HOST in server.url
