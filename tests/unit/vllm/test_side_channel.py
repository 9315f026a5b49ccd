"""Reports as datagrams, between two ends in one process and in two."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from eccache.adapters.vllm import side_channel
from eccache.adapters.vllm.side_channel import ReportReceiver, ReportSender, output_is_dropped
from eccache.ports.lookup import WorkerReport
from tests.unit.vllm.conftest import MakeConfig

TOKEN = f"side-{os.getpid()}"
REPORT = WorkerReport(counters={"stored": 2, "faults:save": 1}, made=frozenset({"bfloat16"}))


@pytest.fixture
def receiver() -> Iterator[ReportReceiver]:
    """The scheduler's end."""
    receiver = ReportReceiver(TOKEN)
    yield receiver
    receiver.close()


@pytest.fixture
def sender() -> Iterator[ReportSender]:
    """A worker's end."""
    sender = ReportSender(TOKEN)
    yield sender
    sender.close()


def test_reports_arrive_in_order_and_once(receiver: ReportReceiver, sender: ReportSender) -> None:
    """Counts are neither lost nor doubled on the way."""
    second = WorkerReport(counters={"stored": 1})
    assert [True, True] == [sender.send(REPORT), sender.send(second)]
    assert [REPORT, second] == list(receiver.receive())
    assert [] == list(receiver.receive())


def test_without_a_scheduler_a_report_is_not_sent(sender: ReportSender) -> None:
    """The worker is told, and keeps it."""
    assert sender.send(REPORT) is False


def test_a_full_inbox_does_not_block(receiver: ReportReceiver, sender: ReportSender) -> None:
    """A scheduler that does not look makes the worker keep its counts, not wait."""
    sent = sum(sender.send(REPORT) for _ in range(10_000))
    assert 0 < sent < 10_000
    assert sent == len(list(receiver.receive()))
    assert sender.send(REPORT) is True


def test_a_report_comes_from_another_process(receiver: ReportReceiver) -> None:
    """As in an engine with workers of its own."""
    script = (
        "import sys; from eccache.adapters.vllm.side_channel import ReportSender\n"
        "from eccache.ports.lookup import WorkerReport\n"
        "assert ReportSender(sys.argv[1]).send(WorkerReport(counters={'stored': 1}))\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, TOKEN], check=True)
    assert [WorkerReport(counters={"stored": 1})] == list(receiver.receive())


@pytest.mark.parametrize("message", [b"", b"{", b"[1]", b"[1, 2]", b"\xff", b"[{}, [{}]]"])
def test_what_is_no_report_is_left_alone(
    receiver: ReportReceiver, sender: ReportSender, message: bytes
) -> None:
    """And does not hide what comes behind it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(message, side_channel._address(TOKEN))  # noqa: SLF001
    sender.send(REPORT)
    assert [REPORT] == list(receiver.receive())


def test_another_users_report_is_left_alone(
    receiver: ReportReceiver, sender: ReportSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone on the host may write to the name; the kernel says who did."""
    sender.send(REPORT)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert [] == list(receiver.receive())


def test_a_datagram_that_shows_nobody_is_left_alone() -> None:
    """Without the kernel's word there is no sender."""
    assert side_channel._sender([]) is None  # noqa: SLF001 - what can't be sent here
    assert side_channel._sender([(socket.SOL_SOCKET, socket.SCM_RIGHTS, b"")]) is None  # noqa: SLF001


def test_a_taken_name_stops_no_start(receiver: ReportReceiver, sender: ReportSender) -> None:
    """Without its name the scheduler's end receives nothing; that costs counts, not a server."""
    second = ReportReceiver(TOKEN)
    sender.send(REPORT)
    assert [] == list(second.receive())
    assert [REPORT] == list(receiver.receive())
    second.close()


@pytest.mark.parametrize(
    ("role", "dropped"), [("ec_producer", True), ("ec_both", False), ("ec_consumer", False)]
)
def test_only_an_encoding_servers_output_is_dropped(
    make_config: MakeConfig,
    role: str,
    dropped: bool,  # noqa: FBT001
) -> None:
    """And only by vLLM's first runner."""
    config = make_config(role)
    assert dropped is output_is_dropped(config)
    second: Any = SimpleNamespace(
        ec_transfer_config=config.ec_transfer_config, use_v2_model_runner=True
    )
    assert output_is_dropped(second) is False
