"""What a child writes that is no message: some lines a second for the log, and its last words on standard error."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from structlog.typing import FilteringBoundLogger

from adapter.rules.text.events import LONGEST_TEXT, for_log, is_telling, shortened
from adapter.wire.lines import Line, LongLine

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
