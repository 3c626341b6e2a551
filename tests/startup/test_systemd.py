"""Messages to a service manager, read from real datagram sockets."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.startup.systemd import ServiceNotifier, notifier_from


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """The address as NOTIFY_SOCKET has it, and the manager's end."""
    address = str(tmp_path / "notify") if request.param == "file" else f"@adapter-{os.getpid()}-notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        opened.bind(address if request.param == "file" else f"\0{address[1:]}")
        opened.settimeout(5)
        yield address, opened


def heard(opened: socket.socket) -> list[str]:
    return opened.recv(4096).decode().split("\n")


def test_a_service_tells_its_state(manager: tuple[str, socket.socket]) -> None:
    """Ready, reloading with the time of the machine, ready again and stopping are one datagram each."""
    address, opened = manager
    service = notifier_from({"NOTIFY_SOCKET": address})
    service.ready("serving")
    assert heard(opened) == ["READY=1", "STATUS=serving"]
    before = time.monotonic_ns() // 1000
    service.reloading("reading")
    first, second, third = heard(opened)
    assert (first, third) == ("RELOADING=1", "STATUS=reading")
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
    service.stopping()
    assert heard(opened)[0] == "STOPPING=1"
    service.status("one\nREADY=1 " + "x" * 1000)
    (line,) = heard(opened)
    assert line.startswith("STATUS=one READY=1 x") and len(line) < 320
    service.status("/data/\udcff is not writable")
    assert heard(opened) == ["STATUS=/data/? is not writable"]


def test_signs_of_life_come_at_half_the_time(manager: tuple[str, socket.socket]) -> None:
    """WATCHDOG_USEC is the time after which silence is a failure; a sign is given when it is due, and not before."""
    address, opened = manager
    service = notifier_from({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
    assert (service.alive(100.0), service.alive(101.0), service.alive(101.5)) == (101.5, 101.5, 103.0)
    opened.setblocking(False)
    assert [heard(opened), heard(opened)] == [["WATCHDOG=1"], ["WATCHDOG=1"]]
    with pytest.raises(BlockingIOError):
        opened.recv(1)


def test_programs_below_do_not_speak_for_the_service() -> None:
    """The variables leave the environment, and are kept for a program that takes this process over."""
    asked = {"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": "5", "WATCHDOG_PID": str(os.getpid())}
    environ = {**asked, "PATH": "/bin"}
    assert notifier_from(environ).variables == asked
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "5000000"},
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "5000000"},
        {"NOTIFY_SOCKET": "@", "WATCHDOG_USEC": "5000000"},
        {"NOTIFY_SOCKET": "vsock:2:1", "WATCHDOG_USEC": "5000000"},
        {"NOTIFY_SOCKET": "relative/path"},
    ],
)
def test_without_a_manager_nothing_is_sent(variables: dict[str, str]) -> None:
    """A process that nobody listens to, or at an address of another kind, is silent."""
    service = notifier_from(dict(variables))
    service.ready("serving")
    assert not service.heard and service.alive(1.0) is None


@pytest.mark.parametrize(
    "variables",
    [{"WATCHDOG_USEC": "5", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}],
)
def test_a_watchdog_of_another_process_is_not_fed(variables: dict[str, str]) -> None:
    """So is one whose time is no number, or none."""
    assert notifier_from({"NOTIFY_SOCKET": "/run/notify", **variables}).period is None


def test_a_manager_that_has_gone_stops_nobody(tmp_path: Path) -> None:
    """Serving does not depend on who listens."""
    ServiceNotifier(str(tmp_path / "nobody")).ready("serving")
