"""The names that are read in a message, and the other keys that some reader of JSON takes for them. Pure.

Go's encoding/json takes a key in another case for the one it knows, by simple case folding, under which the long s is
an s. Other readers do so on request, or leave out underscores, white space, invisible characters, or all that follows
a NUL. Readers also differ on a key that an object has twice: ``repeats_a_key`` finds any.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

MOST_MEMBERS = 1000
"""Members of one object of a message that are looked at one by one, where its names are not settled by counting."""

TOO_MANY = f"An object of the message has more than {MOST_MEMBERS} members."

LONGEST_KEY = 256
"""Characters of a key that may be another name than it seems to be."""

_LONGEST_SHOWN = 40


class Names(NamedTuple):
    """The names that are read in one object of a message.

    ``refused`` stand twice in no message that is passed on, ``judged`` in none for a server with a guard; neither has
    a second spelling there. ``known`` are the protocol's other names.
    """

    refused: tuple[str, ...]
    judged: tuple[str, ...]
    plain: frozenset[str]
    alike: Mapping[str, str]

    @classmethod
    def of(
        cls, *, refused: Iterable[str] = (), judged: Iterable[str] = (), known: Iterable[str] = ()
    ) -> Names:
        read = (*refused, *judged)
        alike = {likeness(name): name for name in read}
        return cls(tuple(refused), tuple(judged), frozenset((*read, *known)), alike)

    def second_spelling(self, members: Collection[str]) -> str | None:
        """The sentence on the first of an object's members that some reader takes for one that it is not."""
        if len(members) > MOST_MEMBERS:
            return TOO_MANY
        for key in members:
            # Servers have parameters of their own, and this is a usual one.
            if key in self.plain or (key == "meta" and "_meta" not in members):
                continue
            if len(key) > LONGEST_KEY or "\0" in key:
                return f"{shown_key(key)} is too long for the name of a member, or contains a NUL."
            meant = self.alike.get(likeness(key))
            if meant is not None:
                return f"{shown_key(key)} could be read as another member: {shown_key(meant)}."
        return None


def likeness(name: str) -> str:
    """The same for two names that some reader takes for one; linear in the name.

    Two are one where they differ in case, by any rule of Unicode's, in form, in marks, in underscores and hyphens,
    and in white space, controls and characters that nobody sees.
    """
    if not name.isascii():
        name = "".join(map(_folded, name))
    return name.lower().translate(_LEFT_OUT)


@lru_cache(4096)
def _folded(character: str) -> str:
    # In capitals first: the dotless i has no other way to an i, and NFKD parts the dotted one from its dot.
    text = unicodedata.normalize("NFKD", character).upper().casefold()
    return "".join(
        each
        for each in unicodedata.normalize("NFKD", text)
        if unicodedata.category(each)[0] not in "CMZ" and each not in _UNSEEN_LETTERS
    )


_LEFT_OUT = dict.fromkeys((*range(0x21), ord("_"), ord("-"), 0x7F))
# Fillers of Hangul, and what stands for bytes that are no character.
_UNSEEN_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\ufffd")

MESSAGE = Names.of(refused=("jsonrpc", "id", "method", "params"), judged=("result", "error"))
PARAMS = Names.of(
    refused=("name", "uri", "_meta"),
    judged=("arguments", "task", "taskId", "cursor", "requestId", "inputResponses", "requestState"),
    known=[
        "protocolVersion",
        "capabilities",
        "clientInfo",
        "level",
        "ref",
        "argument",
        "context",
        "reason",
        "progressToken",
        "progress",
        "total",
        "message",
        "notifications",
        "status",
        "ttl",
    ],
)
META = Names.of(
    refused=(VERSION_KEY,),
    known=[
        "progressToken",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/related-task",
        "traceparent",
        "tracestate",
        "baggage",
    ],
)
RESULT = Names.of(judged=("tools", "nextCursor"), known=("_meta", "resultType", "ttlMs", "cacheScope"))
TOOL = Names.of(
    judged=("name", "title", "description", "inputSchema", "outputSchema", "annotations"),
    known=("_meta", "icons", "execution"),
)
METHODS = Names.of(
    judged=[
        "initialize",
        "ping",
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/get",
        "prompts/list",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/cancel",
        "tasks/update",
        "server/discover",
        "subscriptions/listen",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    ],
)


def shown_key(text: str) -> str:
    """A key or method as a sentence shows it: quoted, in ASCII, and cut."""
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return json.dumps(cut)


# --- any JSON -------------------------------------------------------------------------------------------------


def repeats_a_key(doc: bytes, value: Any = None) -> bool:
    """Tell whether any object in a valid JSON text has a key twice, or is too deep to tell. ``value`` is what the text
    says, where that was read.
    """
    try:
        # What is written as it came has each key once, and most is written like that.
        value = orjson.loads(doc) if value is None else value
        if orjson.dumps(value) == doc:
            return False
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    # Counting takes a third of the time of a look at every pair. Without a backslash every quote begins or ends a
    # text, and a key that repeats is missing among the parsed texts.
    if value is not None and b"\\" not in doc and _has_a_text_for_each_quote(doc, value):
        return False
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({key for key, _ in pairs}) < len(pairs)

    # Numbers do not matter, and int() refuses those of thousands of digits.
    decoder = json.JSONDecoder(object_pairs_hook=look, parse_int=len, parse_float=len)
    try:
        decoder.decode(doc.decode())
    except RecursionError:
        return True
    return repeated


def _has_a_text_for_each_quote(doc: bytes, parsed: Any) -> bool:
    left = [parsed]
    texts = 0
    for value in left:
        if isinstance(value, str):
            texts += 1
        elif isinstance(value, dict):
            texts += len(value)
            left += value.values()
        elif isinstance(value, list):
            left += value
    return doc.count(b'"') == 2 * texts
