"""Ids of several clients in one session at a server (JSON-RPC ids and MCP's progress tokens).

Each id that a client chose travels upstream as ``"TAG.ID"``, where ID is its JSON text: an answer tells by itself
whose it is, also after a restart. Ids that the server chose reach clients as ``"EPOCH.TAG.ID"``; TAG is ``*`` where
everybody was asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from adapter.errors import BadJson
from adapter.wire.envelope import NO_META, Envelope, dump, parse, value_at
from adapter.wire.spans import Edit, Replace, edit, find

EVERYBODY = "*"
"""The tag of what has no addressee."""

PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"

_ID_FIRST = re.compile(
    rb'\{(?:"jsonrpc": ?"2\.0", ?|"method": ?"[^"\\]{1,99}", ?){0,2}"id": ?(-?[0-9]{1,15})(?=,)'
)

_TOKEN_IN_META = re.compile(
    rb'"_meta": ?\{(?:[^{}"]|"[^"]*")*?"progressToken": ?(-?[0-9]{1,15}|"[^"]{0,99}")(?=[,}])'
)

TOKEN = ("params", "_meta", "progressToken")
"""The place of the progress token that a request brings."""

_TAG = re.compile(r"~?[0-9a-f]{16}(?:-[0-9a-f]{12})?|\*")
_EPOCH = re.compile(r"[0-9a-f]{8}")
_ID_BEFORE = re.compile(rb'"id"[ \t\n\r]{0,8}:[ \t\n\r]{0,8}\Z')
_LONGEST_LEAD = 24
_LARGE = 64 << 10


class TaggedId(NamedTuple):
    """An id of a client: whose it is, and its JSON text."""

    tag: str
    id: bytes


class AskedId(NamedTuple):
    """An id of a server: the session it was asked in, who was asked, and its JSON text."""

    epoch: str
    tag: str
    id: bytes


class Addressed(NamedTuple):
    """A message of a server as it may leave, and for whom it is: None means everybody.

    ``asks`` is the id, as the server wrote it, of a request that clients are to answer.
    """

    data: bytes
    tag: str | None
    asks: bytes | None = None


def tagged(tag: str, text: bytes) -> bytes:
    """The JSON text of the id ``text`` under a tag."""
    return dump(f"{tag}.{text.decode('utf-8')}")


def untagged(value: object) -> TaggedId | None:
    """The id that was tagged so; None for what is no tagged id."""
    if not isinstance(value, str):
        return None
    tag, _, text = value.partition(".")
    found = _id_text(text) if _TAG.fullmatch(tag) else None
    return None if found is None else TaggedId(tag, found)


def asked_id(value: object) -> AskedId | None:
    """The id of a server's request that a client names so; None for what is none."""
    if not isinstance(value, str):
        return None
    epoch, _, rest = value.partition(".")
    found = untagged(rest) if _EPOCH.fullmatch(epoch) else None
    return None if found is None else AskedId(epoch, *found)


def _id_text(text: str) -> bytes | None:
    """``text`` as bytes if it is the JSON text of an id and nothing else: it is going to be written into a message."""
    try:
        value = text.encode("utf-8")
        found = parse(value)
    except (UnicodeEncodeError, BadJson):
        return None
    return value if isinstance(found, str | int | float) and not isinstance(found, bool) else None


# --- from clients ---------------------------------------------------------------------------------------------


def request_upward(request: Envelope, tag: str) -> bytes:
    """A client's request as it goes to the server."""
    # Two looks in place of an edit, which takes ten times as long.
    body, usual = request.body, _ID_FIRST.match(request.body)
    token = None
    if usual is not None and (b"progressToken" in body or b"\\" in body):
        # Without escapes, a key that is there once is that of the params, which have it.
        is_usual = request.trace is not NO_META and b"\\" not in body and body.count(b'"_meta"') == 1
        token = _TOKEN_IN_META.search(body) if is_usual else None
        usual = usual if token is not None else None
    if usual is None:
        return _edited_upward(request, tag)
    lead = b'"' + tag.encode("ascii") + b"."
    if token is not None:
        text = token[1].replace(b'"', b'\\"')
        body = body[: token.start(1)] + lead + text + b'"' + body[token.end(1) :]
    return body[: usual.start(1)] + lead + usual[1] + b'"' + body[usual.end(1) :]


def _edited_upward(request: Envelope, tag: str) -> bytes:
    edits: list[Edit] = [Replace(("id",), tagged(tag, request.id_bytes))]
    token = token_of(request.body)
    if token is not None:
        edits.append(Replace(TOKEN, tagged(tag, token)))
    return edit(request.body, edits)


def token_of(message: bytes) -> bytes | None:
    """The progress token that a request brings, as it is spelled, None where there is none."""
    # A backslash may hide an escaped spelling of the key.
    if b"progressToken" not in message and b"\\" not in message:
        return None
    span = find(message, TOKEN)
    return None if span is None or message[span[0]] in b"{[tfn" else message[span[0] : span[1]]


def with_id(message: bytes, text: bytes) -> bytes:
    """A response or request under another id."""
    return edit(message, [Replace(("id",), text)])


def about(notification: bytes, member: str, text: bytes) -> bytes:
    """A notification whose ``params`` name another id in ``member``."""
    return edit(notification, [Replace(("params", member), text)])


def named(message: Any, member: str) -> object:
    """The value of a member of a message's ``params``; None where there is none."""
    found: object = value_at(message, "params", member)
    return found


# --- from the server ------------------------------------------------------------------------------------------


def plain_answer(data: bytes, tag: str) -> bytes | None:
    """The answer to a request that went out under ``tag``, under its own id again; None where this takes reading.

    It is not parsed: besides the id only an echo of the request can hold the tag, and then it is there twice. A large
    message is taken for the answer then, whatever else it names.
    """
    if len(data) <= _LARGE and b'"method"' in data:
        return None
    lead = b'"' + tag.encode("ascii") + b"."
    at = data.find(lead)
    if at < 0 or data.find(lead, at + 1) >= 0 or not _ID_BEFORE.search(data[max(0, at - _LONGEST_LEAD) : at]):
        return None
    if (usual := _SHORT_NUMBER.match(data, at + len(lead))) is not None:
        return data[:at] + usual[1] + data[usual.end() :]
    end = _end_of_string(data, at)
    found = untagged(parse(data[at:end])) if end > 0 else None
    return None if found is None else data[:at] + found.id + data[end:]


def _end_of_string(data: bytes, at: int) -> int:
    """The end of the short string that begins there; -1 where it does not end soon."""
    found = _SHORT_STRING.match(data, at)
    return found.end() if found else -1


_SHORT_NUMBER = re.compile(rb'(0|-?[1-9][0-9]{0,14})"')
_SHORT_STRING = re.compile(rb'"[^"\\]{0,512}+(?:\\.[^"\\]{0,512}+){0,64}+"', re.DOTALL)


def downward(
    data: bytes, message: dict[str, Any], tag: str, epoch: str, tag_of: Callable[[bytes], str]
) -> Addressed | None:
    """A server's message on a stream of ``tag`` as it may leave; None for an answer without an addressee.

    ``tag_of`` tells of the id of a server's request who was asked.
    """
    # On a client's own stream what has no tag is that client's all the same.
    stray = None if tag == EVERYBODY else Addressed(data, None)
    if "method" not in message:
        found = untagged(message.get("id"))
        return stray if found is None else Addressed(with_id(data, found.id), found.tag)
    if message.get("id") is not None:
        return _request_downward(data, tag, epoch)
    if message["method"] == PROGRESS:
        found = untagged(named(message, "progressToken"))
        if found is None:
            return stray
        return Addressed(about(data, "progressToken", found.id), found.tag)
    if message["method"] == CANCELLED and (span := find(data, ("params", "requestId"))) is not None:
        text = data[span[0] : span[1]]
        whom = tag_of(text)
        cancelled = about(data, "requestId", tagged(f"{epoch}.{whom}", text))
        return Addressed(cancelled, None if whom == EVERYBODY else whom)
    return Addressed(data, None)


def _request_downward(data: bytes, tag: str, epoch: str) -> Addressed:
    span = find(data, ("id",))
    assert span is not None, "it was just read"
    text = data[span[0] : span[1]]
    edits: list[Edit] = [Replace(("id",), tagged(f"{epoch}.{tag}", text))]
    token = token_of(data)
    if token is not None:
        edits.append(Replace(TOKEN, tagged(f"{epoch}.{tag}", token)))
    return Addressed(edit(data, edits), None if tag == EVERYBODY else tag, text)
