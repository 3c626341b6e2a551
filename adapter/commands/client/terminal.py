"""The terminal of a person who calls a server: what it says is shown there without harm, what it asks is asked."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from adapter.rules.text.unicode import hanging, plain, shown
from adapter.rules.tools.call_arguments import (
    ArgumentWord,
    WrongArgument,
    arguments_of,
    properties_of,
    required_of,
)

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
        print(hanging(text[:_LONGEST_NOTE]), file=sys.stderr, flush=True)

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
            piece = await read_input()
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
        self.say("Sign in in the browser. If it does not open, go to")
        self.say(f"  {url}")
        await self.open(url)

    def _end_line(self) -> None:
        if self._is_drawing:
            sys.stderr.write("\n")
            self._is_drawing = False


async def read_input(number: int = 0) -> bytes:
    """What comes next on standard input, nothing at its end. Interrupting does not have to wait for it."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(number, ready.set)
    except PermissionError:
        pass  # a file, which is always ready
    except OSError:
        return b""
    else:
        try:
            await ready.wait()
        finally:
            loop.remove_reader(number)
    return os.read(number, 1 << 16)


# --- questions of servers (elicitation) ------------------------------------------------------------------------

_MOST_FIELDS = 100
_MOST_CHOICES = 50
_ATTEMPTS = 5
_LONGEST_TEXT = 300
_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}
_CANCEL = {"action": "cancel"}


async def answer(terminal: Terminal, question: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a person; the result of the elicitation. Who gives no answer cancels it."""
    message = str(question.get("message", ""))
    if question.get("mode") == "url":
        return await _visit(terminal, message, str(question.get("url", "")))
    terminal.say(f"The server asks: {message}")
    agrees = await _agrees(terminal, "Answer? [y/n]")
    if not agrees:
        return _CANCEL if agrees is None else {"action": "decline"}
    schema = question.get("requestedSchema")
    content = {}
    for name, field in islice(properties_of(schema).items(), _MOST_FIELDS):
        try:
            value = await _field(terminal, name, field, name in required_of(schema))
        except EOFError:
            return _CANCEL
        if value is not None:
            content[name] = value
    return {"action": "accept", "content": content}


async def _visit(terminal: Terminal, message: str, url: str) -> dict[str, Any]:
    # In one line, so that the address below it is the one that is opened.
    terminal.say(f"The server asks you to visit a page: {' '.join(message.split())}")
    terminal.say(f"  {url}")
    if not url.lower().startswith(("https://", "http://")):
        terminal.say("This is no address of a web page, so the answer is no.")
        return {"action": "decline"}
    agrees = await _agrees(terminal, "Open it? [y/n]")
    if agrees:
        await terminal.open(url)
        agrees = await terminal.ask("Press Return when you are done there.") is not None or None
    return {"action": "accept"} if agrees else _CANCEL if agrees is None else {"action": "decline"}


async def _agrees(terminal: Terminal, prompt: str) -> bool | None:
    for _ in range(_ATTEMPTS):
        line = await terminal.ask(prompt)
        if line is None or line.lower() in _YES_OR_NO:
            return None if line is None else _YES_OR_NO[line.lower()]
    return None


async def _field(terminal: Terminal, name: str, schema: Any, is_required: bool) -> Any:
    """The value of one field, None where it is left out. Raises EOFError if nobody answers."""
    schema = schema if isinstance(schema, dict) else {}
    default = schema.get("default")
    title = shown(str(schema.get("title") or name), _LONGEST_TEXT)
    about = shown(str(schema.get("description", "")), _LONGEST_TEXT)
    choices = _choices(schema)
    hint = "" if default is None else f" (Return for {shown(json.dumps(default), _LONGEST_TEXT)})"
    prompt = f"  {title}{about and f' – {about}'}{choices}{hint}:"
    for _ in range(_ATTEMPTS):
        line = await terminal.ask(prompt)
        if line is None:
            break
        if not line and (default is not None or not is_required):
            return default
        try:
            if line:
                return arguments_of(name, {"properties": {name: schema}}, [_word(name, line, schema)])[name]
        except WrongArgument as wrong:
            terminal.say(str(wrong))
    raise EOFError


def _word(name: str, line: str, schema: Mapping[str, Any]) -> ArgumentWord:
    if schema.get("type") == "array" and not line.startswith("["):
        return ArgumentWord(name, json.dumps([part.strip() for part in line.split(",")]), "json")
    if schema.get("type") == "boolean" and line.lower() in _YES_OR_NO:
        line = json.dumps(_YES_OR_NO[line.lower()])
    return ArgumentWord(name, line, "text")


def _choices(schema: Mapping[str, Any]) -> str:
    """The values that a field may have, each with its title."""
    if schema.get("type") == "boolean":
        return " [y/n]"
    items = schema.get("items")
    holder = items if isinstance(items, dict) else schema
    titled, plain = (
        each if isinstance(each, list) else []
        for each in (holder.get("oneOf") or holder.get("anyOf"), holder.get("enum"))
    )
    found = [
        f"{each['const']}: {each['title']}" if "title" in each else str(each["const"])
        for each in titled[:_MOST_CHOICES]
        if isinstance(each, dict) and "const" in each
    ] or [str(each) for each in plain[:_MOST_CHOICES]]
    several = "several of " if isinstance(items, dict) else ""
    return f" [{several}{', '.join(shown(each, _LONGEST_TEXT) for each in found)}]" if found else ""
