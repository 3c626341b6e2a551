"""Results on a terminal, where a stranger's characters would move the cursor; and Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.client.speaking import Speaking, speaking, text
from tests.commands.client.test_terminal_questions import FORM, asking
from tests.edge.raw import Exchange

HOSTILE = "\x1b[2J\x9b31m\u202e\r\nnext\tline " * 100_000


def started(place: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command with all its streams on a terminal, and that terminal."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "HOME": str(place), "XDG_DATA_HOME": ""}
    command = [sys.executable, "-m", "adapter", *arguments]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        start_new_session=True,
        # Who runs the tests in the background ignores Ctrl-C, and so would this process.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    return process, ours


def read(terminal: int, until: bytes | None = None) -> bytes:
    """What is shown, up to the end or to these words."""
    shown = b""
    # A terminal without a process fails to be read.
    with contextlib.suppress(OSError):
        while (until is None or until not in shown) and (piece := os.read(terminal, 1 << 16)):
            shown += piece
    return shown


@pytest.mark.deep
async def test_a_terminal_comes_to_no_harm(tmp_path: Path) -> None:
    """Control characters are shown, and of megabytes only the beginning."""

    async def call(exchange: Exchange, _: Speaking) -> None:
        await exchange.json(text(exchange, HOSTILE))

    async with speaking(call) as server:
        process, terminal = started(tmp_path, "call", server.url, "paint", "what=x")
        shown = (await asyncio.to_thread(read, terminal)).decode()
        assert await asyncio.to_thread(process.wait, 60) == 0
    os.close(terminal)
    assert shown.startswith("\\u001b[2J\\u009b31m\\u202e\r\nnext    line ")
    assert all(line.isprintable() for line in shown.split("\r\n"))
    assert len(shown) < 1_000_000 and " characters more: write them to a file by > FILE." in shown


@pytest.mark.deep
async def test_an_interrupt_ends_a_question(tmp_path: Path) -> None:
    """At once, though nobody has pressed Return."""
    async with speaking(asking(message="Who?", requestedSchema=FORM)) as server:
        process, terminal = started(tmp_path, "call", server.url, "paint", "what=x")
        await asyncio.to_thread(read, terminal, b"Answer? [y/n]")
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 60) == 130
        server.said[99].cancel()
    assert b"Traceback" not in await asyncio.to_thread(read, terminal)
    os.close(terminal)
