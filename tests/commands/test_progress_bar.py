"""The progress bar of transfers."""

from __future__ import annotations

import io

import pytest

from adapter.commands.progress_bar import ProgressBar, count_of, size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is() -> None:
    """The share of the whole and the speed, on one line that is written over and over."""
    terminal = Terminal()
    bar = ProgressBar(2048, terminal)
    bar.advance(1024)
    bar.advance(1024)
    bar.end()
    last = terminal.getvalue().rpartition("\r\x1b[K")[2]
    assert last.startswith(f"[{'#' * 30}] 100% of 2.0 KiB, ") and last.endswith("/s\n")


def test_more_than_was_announced_is_a_whole() -> None:
    """A file that grows while it moves does not burst the bar, and one of unknown size has none."""
    terminal = Terminal()
    bar = ProgressBar(1, terminal)
    bar.advance(5)
    bar.end()
    assert "100% of 1 B" in terminal.getvalue()
    unknown = ProgressBar(None, terminal)
    unknown.advance(3 << 20)
    unknown.end()
    assert terminal.getvalue().rpartition("\r\x1b[K")[2].startswith("3.0 MiB, ")


def test_a_pipe_sees_nothing() -> None:
    """Only terminals are drawn on."""
    pipe = io.StringIO()
    bar = ProgressBar(10, pipe)
    bar.advance(10)
    bar.end()
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (1 << 52, "4096.0 TiB")],
)
def test_sizes_for_people(count: int, text: str) -> None:
    """Three digits or so, and the unit."""
    assert size(count) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 servers"), (1, "1 server"), (12, "12 servers")])
def test_one_is_no_plural(number: int, text: str) -> None:
    """Numbers of things are told as people say them."""
    assert count_of(number, "server") == text
