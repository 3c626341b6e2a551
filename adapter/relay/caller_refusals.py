"""Callers that an upstream refuses: the last refusal of each server, for people to see."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from adapter.rules.text.events import Redactor
from adapter.rules.text.unicode import shown
from adapter.upstream.port import header

REFUSED = (401, 403)
"""Statuses of an upstream that refuses whoever asks."""

READ = 4096
"""Bytes of a refusal that are read."""

SHOWN = 300
"""Characters of it that are kept."""

HIDDEN = "[hidden]"
_SHORTEST = 6
_HARMLESS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "origin",
        "user-agent",
    }
)
_BETWEEN = re.compile(r"[\s,;=]+")
_redacted = Redactor(HIDDEN)

Fields = Iterable[tuple[str, str]]


class CallerRefusal(NamedTuple):
    """``at`` in Unix seconds. ``text`` is the upstream's own, without credentials; empty if it cannot be shown."""

    at: float
    status: int
    text: str


def caller_refusal(
    at: float, status: int, answer: Fields, body: object, request: Fields, secrets: Iterable[str | None] = ()
) -> CallerRefusal:
    """Read a refusal with these header fields and this body; one that streams has no text.

    Values of the ``request``'s own fields, and ``secrets``, are hidden in it: servers repeat what they refuse.
    """
    if not isinstance(body, bytes) or header([*answer], "content-encoding") not in (None, "identity"):
        return CallerRefusal(at, status, "")
    values = [value for name, value in request if name.lower() not in _HARMLESS]
    words = {word for value in (*values, *filter(None, secrets)) for word in _words(value)}
    ordered = sorted((word for word in words if len(word) >= _SHORTEST), key=len, reverse=True)
    text = body[:READ].decode("utf-8", "replace").strip()
    for word in ordered:
        text = text.replace(word, HIDDEN)
    if len(body) > READ:
        text = _without_begun(text, ordered)
    return CallerRefusal(at, status, shown(_redacted(text), SHOWN))


def _words(value: str) -> set[str]:
    """A value and its parts: a server repeats a cookie without its name, and a token without its scheme."""
    return {value, *value.split(), *_BETWEEN.split(value)}


def _without_begun(text: str, words: list[str]) -> str:
    """A text that was cut, without the begin of a word at its end."""
    for word in words:
        for length in range(min(len(word), len(text)), 0, -1):
            if text.endswith(word[:length]):
                text = text[:-length] + HIDDEN
                break
    return text
