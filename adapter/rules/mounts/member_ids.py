"""Messages of the servers of a merged mount: the ids that these choose are told apart for clients, and back again, and
so are URIs. Pure.

Servers choose ids without knowing of each other: those of their requests, progress tokens, tasks and events, and the
states of requests. To clients each is ``SERVER.ID``, where ID is its JSON text (of a task or a state, its text); ids of
servers have no dot. What clients choose is theirs alone, so it stays as it is. In a session SERVER has a mark behind it
that no server knows: a question with an id that another server's might have leads nowhere, however it is hidden from
who reads messages here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.rules.mounts.uris import UriTable
from adapter.wire.envelope import dump, list_at, parse, value_at
from adapter.wire.shared_ids import CANCELLED, TOKEN, named, tagged, token_of
from adapter.wire.spans import Edit, Path, Replace, edit, find

LARGEST = 1 << 20
"""Bytes of a message that is looked into. A larger one is a result: nothing else is so big."""

_RELATED = "io.modelcontextprotocol/related-task"
_TASKS: tuple[tuple[str, ...], ...] = (
    ("params", "taskId"),
    ("params", "_meta", _RELATED, "taskId"),
    ("result", "taskId"),
    ("result", "task", "taskId"),
    ("result", "_meta", _RELATED, "taskId"),
    ("params", "requestState"),
    ("result", "requestState"),
)
"""The places of a task's id (MCP 2025-11-25, "Tasks"), and of a state that comes back with a call's next round (MCP
2026-07-28): another server could do nothing with it, and should not have it.
"""


class MemberId(NamedTuple):
    """An id of a server: its JSON text as the server wrote it."""

    server: str
    id: bytes


def member_of(value: object, servers: Collection[str]) -> tuple[str, str] | None:
    """The server whose id that is, and what the server calls it; None for what is no such id."""
    if not isinstance(value, str):
        return None
    server, dot, rest = value.partition(".")
    return (server, rest) if dot and server in servers else None


def member_id(value: object, servers: Collection[str]) -> MemberId | None:
    """The id that a client names so; None where no server of these has chosen it."""
    found = member_of(value, servers)
    if found is None:
        return None
    try:
        text = found[1].encode("utf-8")
        read = parse(text)
    except (UnicodeEncodeError, BadJson):
        return None
    # It is going to be written into a message, so it is the text of an id and nothing else.
    is_id = isinstance(read, str | int | float) and not isinstance(read, bool)
    return MemberId(found[0], text) if is_id else None


HINTS = (b'"method"', b'"taskId"', b'"requestState"', b'"uri"', b"resourceUri", b"\\u")
"""One of these is in any message with an id or a URI that is told apart: an escape may hide a key."""

_OF_URIS = HINTS[3:]


def downward(
    server: str,
    data: bytes,
    marked: str | None = None,
    uris: Callable[[], UriTable | None] = lambda: None,
) -> bytes:
    """A message of a server as the clients of the mount may have it. ``marked`` stands for the server in ids of its
    requests. ``uris`` are told apart, where there are several servers.
    """
    if len(data) > LARGEST or not any(hint in data for hint in HINTS):
        return data
    try:
        message = parse(data)
    except BadJson:
        return data
    if not isinstance(message, dict):
        return data
    edits: list[Edit] = [Replace(path, dump(f"{server}.{task}")) for path, task in _tasks(message)]
    if isinstance(message.get("method"), str):
        if message.get("id") is not None:
            edits.append(_marked(marked or server, data, ("id",)))
            if token_of(data) is not None:
                edits.append(_marked(marked or server, data, TOKEN))
        elif message["method"] == CANCELLED and named(message, "requestId") is not None:
            edits.append(_marked(marked or server, data, ("params", "requestId")))
    if any(hint in data for hint in _OF_URIS) and (table := uris()) is not None:
        edits += table.edits_of_message(server, message)
    return edit(data, edits) if edits else data


def _marked(server: str, data: bytes, path: Path) -> Replace:
    span = find(data, path)
    assert span is not None, "it was just read"
    return Replace(path, tagged(server, data[span[0] : span[1]]))


def _tasks(message: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """The places of ids of tasks, and the ids."""
    for path in _TASKS:
        if isinstance(value := value_at(message, *path), str):
            yield path, value
    for place, task in enumerate(list_at(message, "result", "tasks")):
        if isinstance(task, dict) and isinstance(task.get("taskId"), str):
            yield ("result", "tasks", place, "taskId"), task["taskId"]


def upward(server: str, data: bytes) -> bytes:
    """A client's message as that server may have it: with its own ids of tasks."""
    if b'"taskId"' not in data and b'"requestState"' not in data and b"\\u" not in data:
        return data
    message = parse(data)
    edits: list[Edit] = []
    for path, task in _tasks(message) if isinstance(message, dict) else ():
        found = member_of(task, (server,))
        if found is not None:
            edits.append(Replace(path, dump(found[1])))
    return edit(data, edits) if edits else data
