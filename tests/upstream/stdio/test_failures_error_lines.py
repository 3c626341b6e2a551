"""What a child writes beside its messages: a bounded number of lines goes to the log, and no secret is in any."""

from __future__ import annotations

import logging

from structlog import get_logger
from structlog.testing import capture_logs

from adapter.rules.text.events import LONGEST_TEXT
from adapter.upstream.stdio.failures import LAST_LINES, LINES_PER_SECOND, DroppedLines, ErrorLines
from adapter.wire.line_messages import LongLine


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def error_lines(*secrets: str, clock: Clock | None = None) -> ErrorLines:
    return ErrorLines(secrets, get_logger(), clock or Clock())


def test_lines_are_logged_at_debug() -> None:
    """One entry for each line."""
    with capture_logs() as logged:
        lines = error_lines()
        lines.take(b"first")
        lines.take(b"second \xff")
    assert [(each["log_level"], each["text"]) for each in logged] == [
        ("debug", "first"),
        ("debug", "second \N{REPLACEMENT CHARACTER}"),
    ]


def test_a_second_has_room_for_some_lines() -> None:
    """The others are counted, and the count is logged when the next line comes or at the end."""
    clock = Clock()
    with capture_logs() as logged:
        lines = error_lines(clock=clock)
        for _ in range(LINES_PER_SECOND + 7):
            lines.take(b"x")
        assert len(logged) == LINES_PER_SECOND
        clock.now += 1
        lines.take(b"y")
        lines.report_left_out()
    assert [each.get("left_out") for each in logged[LINES_PER_SECOND:]] == [7, None]


def test_one_dropped_line_of_each_second_is_logged() -> None:
    """The others are counted, whatever was wrong with them. The next second, or the end, logs their number."""
    clock = Clock()
    with capture_logs() as logged:
        drops = DroppedLines(get_logger(), clock)
        for size in range(2, 1000):
            drops.note(logging.WARNING, "dropped a line that is no message", size)
        clock.now += 1
        drops.note(logging.WARNING, "dropped a line that is too long", 5000)
        drops.note(logging.WARNING, "dropped a line that is no message", 7)
        drops.report_left_out()
        drops.report_left_out()
    assert [each.get("bytes") or each["left_out"] for each in logged] == [2, 997, 5000, 1]


def test_the_last_lines_are_kept() -> None:
    """A bounded number, each of a bounded length, in their order."""
    lines = error_lines()
    for number in range(100):
        lines.take(b"%d" % number)
    lines.take(b"z" * 5000)
    last = lines.last()
    assert len(last) == LAST_LINES
    assert last[-2] == "99"
    assert len(last[-1]) == LONGEST_TEXT


def test_no_line_shows_a_secret() -> None:
    """Neither a value of the child's environment nor anything that looks like a credential."""
    with capture_logs() as logged:
        lines = error_lines("hunter2-hunter2")
        lines.take(b"cannot log in with hunter2-hunter2 at https://me:pw@host/")
        lines.take(LongLine(10_000, b"Authorization: Bearer abcdefgh", b""))
    shown = ("cannot log in with *** at https://***@host/", "Authorization: ***")
    assert lines.last() == shown
    assert tuple(each["text"] for each in logged) == shown
