"""The terminal of a person who calls a server: what it says is shown there without harm, what it asks is asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from adapter.commands.client.questions import answer
from adapter.rules.text.unicode import escaped, shown

_MOST_SHOWN = 100_000
"""Characters of results on a terminal: more than anybody reads there."""

_LONGEST_NOTE = 2000
_MOST_NOTES = 200
_LONGEST_LINE = 1 << 20
_PROGRESS_LENGTH = 78
_EVERY_ON_TERMINAL, _EVERY = 0.1, 1.0
"""Seconds between two looks at the progress of a call."""


class Terminal:
    """Standard streams. Results go to standard output, all else to standard error."""

    def __init__(self) -> None:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # always a text file here
        self._left = _MOST_SHOWN
        self._notes = 0
        self._typed = b""
        self._drawn = 0.0
        self._is_drawing = False
        # A server may ask several questions at once, a person answers one after the other.
        self._asking = asyncio.Lock()

    def show(self, text: str) -> None:
        """Print a result: as it is into a file or a pipe, harmless and not too long on a terminal."""
        if sys.stdout.isatty():
            left, self._left = self._left, max(self._left - len(text), 0)
            over = len(text) - left
            text = plain(text[:left])
            if over > 0:
                text += f"\n… {over} characters more: write them to a file by > FILE."
        self._end_line()
        print(text)

    def say(self, text: str) -> None:
        """Print a note on standard error."""
        self._end_line()
        print(plain(text[:_LONGEST_NOTE]), file=sys.stderr, flush=True)

    async def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """See Person."""
        async with self._asking:
            return await answer(self, question)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """See Person."""
        is_terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._drawn < (_EVERY_ON_TERMINAL if is_terminal else _EVERY) and self._drawn:
            return
        self._drawn = now
        text = f"{progress:g}{'' if total is None else f' of {total:g}'} {message or ''}"
        self._is_drawing = is_terminal
        begin, end = ("\r\x1b[K", "") if is_terminal else ("", "\n")
        print(begin + shown(text.strip(), _PROGRESS_LENGTH), end=end, file=sys.stderr, flush=True)

    async def log(self, level: str, data: Any) -> None:
        """See Person."""
        self._notes += 1
        if self._notes <= _MOST_NOTES:
            text = data if isinstance(data, str) else json.dumps(data)
            self.say(f"{level}: {text[:_LONGEST_NOTE]}")

    async def ask(self, prompt: str) -> str | None:
        """Ask for one line; None where nobody answers."""
        self._end_line()
        print(plain(prompt), end=" ", file=sys.stderr, flush=True)
        while b"\n" not in self._typed:
            piece = await _read()
            self._typed += piece
            if not piece or len(self._typed) > _LONGEST_LINE:
                self._typed = b""
                return None
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()

    async def open(self, url: str) -> None:
        """Show an address in the person's browser, and on the terminal."""
        if url.lower().startswith(("https://", "http://")):
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)

    async def sign_in(self, url: str) -> None:
        """Show where to sign in."""
        self.say(f"Sign in in the browser. If it does not open, go to\n  {url}")
        await self.open(url)

    def _end_line(self) -> None:
        if self._is_drawing:
            sys.stderr.write("\n")
            self._is_drawing = False


def plain(text: str) -> str:
    """A stranger's text with its lines, and with control and invisible characters escaped."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").split("\n")
    return "\n".join(map(escaped, lines))


async def _read() -> bytes:
    """What comes next on standard input, nothing at its end. Interrupting does not have to wait for it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except PermissionError:
        pass  # a file, which is always ready
    except OSError:
        return b""
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(0)
    return os.read(0, 1 << 16)
