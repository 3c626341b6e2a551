"""Messages to the service manager that started this process, in the protocol of ``sd_notify(3)``.

Each message is one datagram to the socket that ``NOTIFY_SOCKET`` names. A process that nobody listens to sends nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Read by the process that systemd started. Programs below it would be taken for it."""

LONGEST_STATUS = 300


class ServiceNotifier:
    """Tells the service manager of this process's state. ``address`` is that of its socket, None: nobody listens.

    ``period`` is the time in seconds between two signs of life, None where none are asked for. ``variables`` are those
    of the environment that a program has to be given which takes this process over.
    """

    def __init__(
        self, address: str | None, period: float | None = None, variables: Mapping[str, str] | None = None
    ) -> None:
        self._address = address
        self.period = None if address is None else period
        self.variables = dict(variables or {})
        self._next_sign = 0.0

    @property
    def heard(self) -> bool:
        """True where a service manager listens."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """Say that requests are answered, at the start or again after ``reloading``."""
        self._send("READY=1", _status(status))

    def reloading(self, status: str) -> None:
        """Say that the settings are read again, until the next ``ready``."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", _status(status))

    def stopping(self) -> None:
        """Say that the process ends as it should."""
        self._send("STOPPING=1", _status("stopping: running requests may finish"))

    def status(self, sentence: str) -> None:
        """Say what ``systemctl status`` shows."""
        self._send(_status(sentence))

    def alive(self, now: float) -> float | None:
        """Give a sign of life if one is due at ``now``, in seconds of a clock that never goes back.

        Returns the time of the next one; None where none are asked for.
        """
        if self.period is None:
            return None
        if now >= self._next_sign:
            self._next_sign = now + self.period
            self._send("WATCHDOG=1")
        return self._next_sign

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
                # Serving goes on when the manager does not read.
                opened.setblocking(False)
                # A path in a sentence may have bytes that are no text.
                opened.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError:
            return


def notifier_from(environ: MutableMapping[str, str]) -> ServiceNotifier:
    """The notifier that the variables ask for, which are removed: no program that is started may speak for this one."""
    variables = {name: environ.pop(name) for name in VARIABLES if name in environ}
    address = variables.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@") or len(address) < 2:
        return ServiceNotifier(None)
    # An address that begins with @ is not in the file system.
    place = f"\0{address[1:]}" if address[0] == "@" else address
    return ServiceNotifier(place, _period(variables), variables)


def _period(variables: Mapping[str, str]) -> float | None:
    """Half of the time after which silence counts as a failure."""
    asked, process = variables.get("WATCHDOG_USEC", ""), variables.get("WATCHDOG_PID", "")
    if not asked.isascii() or not asked.isdigit() or process not in ("", str(os.getpid())):
        return None
    return int(asked) / 2_000_000 or None


def _status(sentence: str) -> str:
    return f"STATUS={' '.join(sentence.split())[:LONGEST_STATUS]}"
