"""Failures of processes: their ends as clients read them, and their starts as operators do.

A sentence on a start names the setting to change.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, UpstreamSilent, UpstreamUnanswered, UpstreamUnreachable
from adapter.rules.text.events import LONGEST_TEXT, for_log, is_telling, shortened
from adapter.upstream.stdio.supervisor import StartRefused
from adapter.wire.line_messages import Line, LongLine

_LAST = 5
"""Lines of standard error that are told with a failure. The log has more."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The end of a process. ``status`` is its exit code, or the negative number of the signal that ended it.

    ``error_lines`` are the last lines of its standard error, bounded and without secrets: for operators, never for
    clients. ``requested`` is True if ``stop`` was called before.
    """

    status: int
    error_lines: tuple[str, ...] = ()
    requested: bool = False

    @property
    def code(self) -> int | None:
        """The exit code; None if a signal ended it."""
        return self.status if self.status >= 0 else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it; None if it ended by itself."""
        return -self.status if self.status < 0 else None

    @property
    def sentence(self) -> str:
        """The end in words that a client may read."""
        if self.signal is None:
            return f"The server's process ended with exit code {self.status}."
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = f"signal {self.signal}"
        return f"The server's process was ended by {name}."


def exited(server: str, child_exit: ChildExit, *, answered: bool) -> AdapterError:
    """The failure of what was under way when a process ended. ``answered``: it had answered something before."""
    sentence = f'Server "{server}": {child_exit.sentence}'
    failure: AdapterError
    if answered:
        failure = UpstreamUnanswered(f"{sentence} The call may have run.")
    else:
        failure = UpstreamUnreachable(f"{sentence} It had not answered anything.")
    if child_exit.error_lines:
        failure.reason = f"{sentence} Its last words: {' | '.join(child_exit.error_lines[-_LAST:])}"
    return failure


def not_started(server: str, error: AdapterError) -> AdapterError:
    """The failure of a process that the system does not start."""
    failure = UpstreamUnreachable(f'Server "{server}": {error}')
    failure.reason = error.reason
    return failure


def never_answered(server: str, seconds: float) -> AdapterError:
    """The failure of a process that is too slow to start."""
    return UpstreamSilent(
        f'Server "{server}": The process answered nothing within {seconds:g} s of its start '
        "(servers[].upstream.start_timeout_seconds)."
    )


def stopped(server: str) -> AdapterError:
    """The failure of what was under way when the adapter stopped a process."""
    return UpstreamUnanswered(
        f'Server "{server}": The process was stopped before it answered. The call may have run.'
    )


def backing_off(server: str, wait: float, reason: str) -> AdapterError:
    """The failure of a start that comes too soon after one that failed."""
    failure = UpstreamUnreachable(
        f'Server "{server}": The process failed to start and is not started again for {wait:.1f} s.',
        retry_after=wait,
    )
    failure.reason = f"{failure} The last start failed: {reason}"
    return failure


# --- starts ---------------------------------------------------------------------------------------------------


def start_failure(refused: StartRefused, command: str, environment: Mapping[str, str], cwd: str) -> str:
    """Return one sentence, or two, about a refused start."""
    if refused.step == "cwd":
        return _of_cwd(refused.error, cwd)
    if refused.step == "command":
        return _of_command(refused.error, command, environment, cwd)
    if refused.error == 0:
        return "The process that starts servers was ended before it could start this one."
    return f"The system starts no process now: {os.strerror(refused.error)}."


def _of_cwd(error: int, cwd: str) -> str:
    if error == errno.ENOENT:
        return f"upstream.cwd: the folder {cwd!r} does not exist."
    if error == errno.ENOTDIR:
        return f"upstream.cwd: {cwd!r} is not a folder."
    return f"upstream.cwd: the folder {cwd!r} cannot be entered: {os.strerror(error)}."


def _of_command(error: int, command: str, environment: Mapping[str, str], cwd: str) -> str:
    if error in (errno.ENOENT, errno.ENOTDIR):
        return _of_missing(command, environment, cwd)
    if error == errno.EACCES:
        return f"upstream.command: {command!r} is not executable: set its permission (chmod +x)."
    if error == errno.ENOEXEC:
        return f"upstream.command: {command!r} is no program: a script needs a first line with #! and its interpreter."
    if error == errno.E2BIG:
        return "upstream.args and upstream.env are together longer than the system allows."
    return f"upstream.command: {command!r} cannot be executed: {os.strerror(error)}."


def _of_missing(command: str, environment: Mapping[str, str], cwd: str) -> str:
    # A script whose interpreter is missing fails like a missing script.
    reason = missing_program(command, environment, cwd)
    return f"upstream.command: {reason or f'{command!r} is there, but the interpreter in its first line is not.'}"


def missing_program(command: str, environment: Mapping[str, str], cwd: str) -> str | None:
    """Return one sentence about a program that is not there, None for one that is."""
    if _is_there(command, environment, cwd):
        return None
    is_path = "/" in command
    missing = f"the file {command!r} does not exist" if is_path else f"{command!r} was not found on PATH"
    program, *arguments = command.split() or [command]
    # A name has no blanks, but the path of a program may.
    if arguments and (not is_path or _is_there(program, environment, cwd)):
        listed = json.dumps(arguments, ensure_ascii=False)
        return f"{missing}: write {program!r} there, and its arguments in upstream.args: {listed}."
    if is_path:
        return f"{missing}."
    return f"{missing}: install it, write its whole path, or set PATH in upstream.env."


def _is_there(command: str, environment: Mapping[str, str], cwd: str) -> bool:
    if "/" in command:
        return Path(cwd, command).exists()
    return shutil.which(command, path=environment.get("PATH", os.defpath)) is not None


LONGEST_LINE = 8192
"""Bytes of a line; of a longer one the beginning is kept."""

LAST_LINES = 20
"""Lines that are kept for the report of the end."""

LINES_PER_SECOND = 50
"""Lines of standard error that go to the log; the others of that second are only counted."""

_HIDDEN = "***"
_SHORTEST_SECRET = 6


class PerSecond:
    """Admits the first ``most`` events of each second of ``clock``, and tells ``left_out`` the number of the others."""

    def __init__(self, most: int, clock: Callable[[], float], left_out: Callable[[int], None]) -> None:
        self._most = most
        self._clock = clock
        self._tell = left_out
        self._second = -1
        self._admitted = 0
        self._left_out = 0

    def admits(self) -> bool:
        """Tell whether one more event is among the first of its second. If not, it is counted."""
        second = int(self._clock())
        if second != self._second:
            self.report()
            self._second, self._admitted = second, 0
        if self._admitted >= self._most:
            self._left_out += 1
            return False
        self._admitted += 1
        return True

    def report(self) -> None:
        """Tell the number of events that were left out since the last time, if there are any."""
        if self._left_out:
            self._tell(self._left_out)
            self._left_out = 0


class DroppedLines:
    """Logs what is dropped of a child's standard output: one line of each second, and the number of the others."""

    def __init__(self, log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._log = log
        self._logged = PerSecond(
            1, clock, lambda count: log.warning("dropped more lines than are logged", left_out=count)
        )
        self.report_left_out = self._logged.report

    def note(self, level: int, event: str, size: int) -> None:
        """Take note of one line."""
        # Asked first: what no log shows takes the place of nothing that it would show.
        if self._log.is_enabled_for(level) and self._logged.admits():
            self._log.log(level, event, bytes=size)


class ErrorLines:
    """Takes the lines of one child. ``secrets`` are values of its environment, which no text may show."""

    def __init__(self, secrets: Sequence[str], log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._secrets = secrets
        self._log = log
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._logged = PerSecond(
            LINES_PER_SECOND,
            clock,
            lambda count: log.debug("more lines on standard error than are logged", left_out=count),
        )
        self.report_left_out = self._logged.report

    def take(self, line: Line) -> None:
        """Log a line, unless this second had too many, and keep it among the last ones."""
        raw = line.head if isinstance(line, LongLine) else line
        self._last.append(raw)
        # Asked first: to clean a text takes longer than all else here.
        if self._logged.admits() and self._log.is_enabled_for(logging.DEBUG):
            self._log.debug("a server wrote to standard error", text=self._shown(raw))

    def last(self) -> tuple[str, ...]:
        """Return the last lines, oldest first, each bounded and without secrets."""
        return tuple(map(self._shown, self._last))

    def _shown(self, raw: bytes) -> str:
        text = raw[:LONGEST_LINE].decode(errors="replace")
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return shortened(for_log(text), LONGEST_TEXT)


def secrets_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values under telling names (TOKEN, PASSWORD …), the longest first; short ones say nothing."""
    values = {
        text for name, text in environment.items() if len(text) >= _SHORTEST_SECRET and is_telling(name)
    }
    return tuple(sorted(values, key=len, reverse=True))
