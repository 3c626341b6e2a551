"""Standard error of a child: some lines a second for the log, and the last lines for the report of its end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from structlog.typing import FilteringBoundLogger

from adapter.rules.text.events import LONGEST_TEXT, for_log, shortened
from adapter.wire.lines import Line, LongLine

LONGEST_LINE = 8192
"""Bytes of a line; of a longer one the beginning is kept."""

LAST_LINES = 20
"""Lines that are kept for the report of the end."""

LINES_PER_SECOND = 50
"""Lines that go to the log; the others of that second are only counted."""

_HIDDEN = "***"


class ErrorLines:
    """Takes the lines of one child. ``secrets`` are values of its environment, which no text may show."""

    def __init__(self, secrets: Sequence[str], log: FilteringBoundLogger, clock: Callable[[], float]) -> None:
        self._secrets = secrets
        self._log = log
        self._clock = clock
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._second = -1
        self._logged = 0
        self._left_out = 0

    def take(self, line: Line) -> None:
        """Log a line, unless this second had too many, and keep it among the last ones."""
        raw = line.head if isinstance(line, LongLine) else line
        self._last.append(raw)
        second = int(self._clock())
        if second != self._second:
            self.report_left_out()
            self._second, self._logged = second, 0
        if self._logged >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._logged += 1
        # Asked first: to clean a text takes longer than all else here.
        if self._log.is_enabled_for(logging.DEBUG):
            self._log.debug("a server wrote to standard error", text=self._shown(raw))

    def report_left_out(self) -> None:
        """Log the number of lines that were not logged since the last time."""
        if self._left_out:
            self._log.debug("more lines on standard error than are logged", left_out=self._left_out)
            self._left_out = 0

    def last(self) -> tuple[str, ...]:
        """Return the last lines, oldest first, each bounded and without secrets."""
        return tuple(map(self._shown, self._last))

    def _shown(self, raw: bytes) -> str:
        text = raw[:LONGEST_LINE].decode(errors="replace")
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return shortened(for_log(text), LONGEST_TEXT)
