"""Questions of servers (elicitation), asked at a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Protocol

from adapter.rules.text.unicode import shown
from adapter.rules.tools.call_arguments import (
    ArgumentWord,
    WrongArgument,
    arguments_of,
    properties_of,
    required_of,
)

_MOST_FIELDS = 100
_MOST_CHOICES = 50
_ATTEMPTS = 5
_LONGEST_TEXT = 300
_YES_OR_NO = {"y": True, "yes": True, "n": False, "no": False}
_CANCEL = {"action": "cancel"}


class Asking(Protocol):
    """Where a person is asked."""

    def say(self, text: str) -> None: ...
    async def ask(self, prompt: str) -> str | None: ...
    async def open(self, url: str) -> None: ...


async def answer(terminal: Asking, question: Mapping[str, Any]) -> dict[str, Any]:
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


async def _visit(terminal: Asking, message: str, url: str) -> dict[str, Any]:
    terminal.say(f"The server asks you to visit a page: {message}\n  {url}")
    if not url.lower().startswith(("https://", "http://")):
        terminal.say("This is no address of a web page, so the answer is no.")
        return {"action": "decline"}
    agrees = await _agrees(terminal, "Open it? [y/n]")
    if agrees:
        await terminal.open(url)
        agrees = await terminal.ask("Press Return when you are done there.") is not None or None
    return {"action": "accept"} if agrees else _CANCEL if agrees is None else {"action": "decline"}


async def _agrees(terminal: Asking, prompt: str) -> bool | None:
    for _ in range(_ATTEMPTS):
        line = await terminal.ask(prompt)
        if line is None or line.lower() in _YES_OR_NO:
            return None if line is None else _YES_OR_NO[line.lower()]
    return None


async def _field(terminal: Asking, name: str, schema: Any, is_required: bool) -> Any:
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
