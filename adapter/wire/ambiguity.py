"""Messages that two readers of JSON could take for different ones. Pure.

The adapter judges a message by what it reads in it, and its receiver reads it again. If an object has a key twice, one
reader takes the first and another the last; a key in another spelling may be the one that a reader knows (see names).
``doubt_of`` looks at a whole message, ``leads_elsewhere`` at the way to an argument, ``doubt_of_answer`` at a response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from adapter.errors import BadRequest
from adapter.wire import spans
from adapter.wire.names import (
    LONGEST_KEY,
    MESSAGE,
    META,
    METHODS,
    MOST_MEMBERS,
    PARAMS,
    TOO_MANY,
    VERSION_KEY,
    Names,
    likeness,
    shown_key,
)
from adapter.wire.scan import is_rare, skip_space

MOST_PLACES = 4096
"""Values of one argument that are looked at, such as the items of a list of files."""

# In a large body of few, long strings (a file in base64) the walk is faster than eight counts.
_LARGE = 32 * 1024
_LONG_STRINGS = 1024

_SHORT = 2048
"""Bytes of a message that is written again, to be compared."""

_RARELY = tuple((name, f'"{name}"'.encode()) for name in ("uri", *PARAMS.judged) if name != "arguments")


# --- messages -------------------------------------------------------------------------------------------------


def doubt_of(message: Mapping[str, Any], body: bytes) -> str | None:
    """The sentence on what another reader could find in ``body``; None if all readers find this message.

    Raises BadRequest for a name of ``refused`` that stands twice.
    """
    params = message.get("params")
    meta = params.get("_meta") if type(params) is dict else None
    once = _is_written_so(message, body) or _surely_once(message, params, meta, body)
    if not once and (doubt := _twice(body, params, meta)) is not None:
        return doubt
    method = message.get("method")
    if method is None:
        return None if _IN_MESSAGE.issuperset(message) else MESSAGE.second_spelling(message)
    if method not in _METHODS and (doubt := _odd_method(method)) is not None:
        return doubt
    if not _IN_REQUEST.issuperset(message) and (doubt := _odd_members(message)) is not None:
        return doubt
    if type(params) is not dict:
        # JSON-RPC has arrays too; MCP has none, and a server may take their items for what it names.
        return (
            f"The params of {method} must be an object."
            if params is not None and method in _METHODS
            else None
        )
    if not _IN_PARAMS.issuperset(params) and (doubt := PARAMS.second_spelling(params)) is not None:
        return doubt
    if type(meta) is not dict or _IN_META.issuperset(meta):
        return None
    return META.second_spelling(meta)


_IN_MESSAGE, _IN_REQUEST, _METHODS = MESSAGE.plain, frozenset(MESSAGE.refused), METHODS.plain
_IN_PARAMS, _IN_META = PARAMS.plain, META.plain


def _odd_members(request: Mapping[str, Any]) -> str | None:
    if request.get("result") is not None or request.get("error") is not None:
        return "A message with a method must not have a result or an error."
    return MESSAGE.second_spelling(request)


def _odd_method(method: str) -> str | None:
    if len(method) > LONGEST_KEY or "\0" in method:
        return f"{shown_key(method)} is too long for a method, or contains a NUL."
    # A server that routes methods like paths ignores another slash.
    parts = likeness(method).split("/")
    meant = METHODS.alike.get("/".join(filter(None, parts)))
    return (
        None if meant is None else f"{shown_key(method)} could be read as another method: {shown_key(meant)}."
    )


def _is_written_so(message: Mapping[str, Any], body: bytes) -> bool:
    """True if the message, written again, has the same bytes: then no object in it has a key twice.

    Most clients write JSON without spaces, as is done here, and for a short text nothing costs less.
    """
    if len(body) > _SHORT:
        return False
    try:
        return orjson.dumps(message) == body
    except orjson.JSONEncodeError:
        return False


def _surely_once(message: Mapping[str, Any], params: Any, meta: Any, body: bytes) -> bool:
    r"""True only if no member that is read stands twice; counting costs a tenth of a walk over the spans.

    Each of these names is ASCII without escapes of its own, so an unusual spelling needs a ``\u00``; the
    slash in VERSION_KEY may also be ``\/``, and its needle begins behind that.
    """
    count = body.count
    if len(body) > _LARGE and is_rare(body, b'"', len(body) // _LONG_STRINGS):
        return False
    if count(b"\\u00") or count(b'"jsonrpc"') != 1 or count(b'"id"') > 1 or count(b'"method"') > 1:
        return False
    if "method" not in message:
        return count(b'"result"') < 2 and count(b'"error"') < 2
    if "params" not in message:
        return True
    if count(b'"params"') != 1:
        return False
    if type(params) is not dict:
        return True
    if "arguments" in params and count(b'"arguments"') != 1:
        return False
    if "_meta" in params and count(b'"_meta"') != 1:
        return False
    if "name" in params and count(b'"name"') != 1 + _names_elsewhere(params, meta):
        return False
    if not _USUAL.issuperset(params) and any(name in params and count(text) != 1 for name, text in _RARELY):
        return False
    return type(meta) is not dict or VERSION_KEY not in meta or count(b'/protocolVersion"') == 1


_USUAL = frozenset(("name", "arguments", "_meta"))


def _names_elsewhere(params: Mapping[str, Any], meta: Any) -> int:
    """Count the members called "name" where calls usually have some: arguments and client info."""
    arguments = params.get("arguments")
    found = 1 if isinstance(arguments, dict) and "name" in arguments else 0
    if isinstance(meta, dict):
        client = meta.get("io.modelcontextprotocol/clientInfo")
        if isinstance(client, dict) and "name" in client:
            found += 1
    return found


def _twice(body: bytes, params: Any, meta: Any) -> str | None:
    """The sentence on a judged name that stands twice. Raises BadRequest for one of ``refused``."""
    places, doubt = _standing(body, 0, MESSAGE)
    if isinstance(params, dict):
        inner, another = _standing(body, places["params"], PARAMS)
        doubt = doubt or another
        if isinstance(meta, dict):
            doubt = doubt or _standing(body, inner["_meta"], META)[1]
    return doubt


def _standing(body: bytes, start: int, names: Names) -> tuple[dict[str, int], str | None]:
    """Find the values of these names in the object at ``start``, and the sentence on one that is there twice."""
    found: dict[str, int] = {}
    doubt = None
    for number, member in enumerate(spans.members(body, start)):
        if number >= MOST_MEMBERS:
            raise BadRequest(TOO_MANY)
        if member.key in found:
            sentence = f'The member "{member.key}" appears twice in one object of the message.'
            if member.key in names.refused:
                raise BadRequest(sentence)
            doubt = sentence
        elif member.key in names.plain:
            found[member.key] = member.value_start
    return found, doubt


# --- arguments ------------------------------------------------------------------------------------------------

_ARGUMENTS_ARE_AN_OBJECT = re.compile(rb'"arguments"[ \t\n\r]*+:[ \t\n\r]*+\{')
_SPACE_IN_KEYS = re.compile(rb"\\[tnrbf]")

Way = Sequence[tuple[str, int]]
"""The names of the members that a value is reached through, each with the levels of lists behind it."""


def leads_elsewhere(message: bytes, way: Way) -> bool:
    """Tell whether a reader may come to another value than the one at the end of this way, which begins at the message.

    It may where a member on the way stands twice or in another spelling, or where the way leads through a text or a
    list: a lenient reader finds a value in it.
    """
    if _surely_plain(message, way):
        return False
    places = [skip_space(message, 0)]
    for name, levels in way:
        inner: list[int] = []
        for place in places:
            if message.startswith((b'"', b"["), place):
                return True
            for member in _members_like(message, place, name):
                if member is None:
                    return True
                inner += _items(message, member.value_start, levels)
                if len(inner) > MOST_PLACES:
                    return True
        places = inner
    return False


def _surely_plain(message: bytes, way: Way) -> bool:
    """True only if nothing leads elsewhere; counting costs a tenth of the walk, and most calls are as simple as this.

    A key in another spelling needs capitals, underscores, spaces, escapes or what is not ASCII. A text that stands once
    at most is no key twice.
    """
    if len(way) != 3 or len(message) > _LARGE or not message.isascii() or b"\\u" in message:
        return False
    alike = message.lower().translate(None, b"_- \x7f")
    if b"\\" in alike:
        alike = _SPACE_IN_KEYS.sub(b"", alike)
    for name, _ in way:
        exact = message.count(f'"{name}"'.encode())
        if exact > 1 or alike.count(f'"{likeness(name)}"'.encode()) != exact:
            return False
    return _ARGUMENTS_ARE_AN_OBJECT.search(message) is not None


def _members_like(message: bytes, place: int, name: str) -> Iterator[spans.Member | None]:
    """The member of this name, if there is one; None for whatever else could be taken for it."""
    if not message.startswith(b"{", place):
        return
    sought = likeness(name)
    found = False
    for member in _bounded(message, place):
        if member is None or member.key == name:
            yield None if found else member
            found = True
        elif likeness(member.key) == sought or likeness(member.key.partition("\0")[0]) == sought:
            yield None


def _items(message: bytes, place: int, levels: int) -> Iterator[int]:
    if levels == 0 or not message.startswith(b"[", place):
        yield place
        return
    for start, _ in spans.items(message, place):
        yield from _items(message, start, levels - 1)


# --- responses ------------------------------------------------------------------------------------------------


def doubt_of_answer(response: bytes, names: Names | None = None) -> str | None:
    """The sentence on what else a client could find in a response, which is an object; None if all find the same.

    ``names`` are those that are read in the result; without them no two of its members may be alike.
    """
    if names is None and len(response) <= _LARGE and _is_usual_answer(response):
        return None
    found, doubt = _alike(response, skip_space(response, 0), MESSAGE)
    result, error = found.get("result"), found.get("error")
    if doubt is not None or result is None:
        return doubt
    if error is not None and not response.startswith(b"null", error.value_start):
        return "A message must not have both a result and an error."
    if not response.startswith(b"{", result.value_start):
        return None
    return _alike(response, result.value_start, names)[1]


_IN_ANSWER = frozenset(("jsonrpc", "id", "result"))
_IN_RESULT = frozenset(("content", "structuredContent", "isError", "_meta", "resultType"))


def _is_usual_answer(response: bytes) -> bool:
    """True only if there is one reading; for a short answer this costs a tenth of a walk over the spans, for one of
    megabytes three walks.

    What is written as it came has each key once, and no two of these names are alike.
    """
    try:
        message = orjson.loads(response)
        if type(message) is not dict or not _IN_ANSWER.issuperset(message):
            return False
        result = message.get("result")
        return type(result) is dict and _IN_RESULT.issuperset(result) and orjson.dumps(message) == response
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False


def _alike(doc: bytes, start: int, names: Names | None) -> tuple[dict[str, spans.Member], str | None]:
    """The members that are read, by their likeness, and the sentence on one that stands there twice."""
    found: dict[str, spans.Member] = {}
    for member in _bounded(doc, start):
        if member is None:
            return found, TOO_MANY
        like = likeness(member.key)
        if names is not None:
            meant = names.alike.get(like)
            if meant is None:
                continue
            if meant != member.key:
                return found, f"{shown_key(member.key)} could be read as another member: {shown_key(meant)}."
        if like in found:
            return found, f"{shown_key(member.key)} occurs twice in one object."
        found[like] = member
    return found, None


def stands_twice(doc: bytes, names: Names) -> bool:
    """Tell whether one of the names stands twice in an object, or the object has too many members to tell."""
    return _alike(doc, skip_space(doc, 0), names)[1] is not None


def may_hold(message: object, *names: str) -> bool:
    """Tell whether a client could find something under these names, each within the one before, in a message or in any
    message of a list.
    """
    found = message if isinstance(message, list) else [message]
    for name in names:
        inner: list[object] = []
        for each in found:
            if not isinstance(each, dict):
                continue
            if len(each) > MOST_MEMBERS:
                return True
            inner += (each[key] for key in each if likeness(key[:LONGEST_KEY]) == likeness(name))
        found = inner
    return bool(found)


def _bounded(doc: bytes, start: int) -> Iterator[spans.Member | None]:
    """The members of an object; None and the end where they are too many or too long to be looked at."""
    for number, member in enumerate(spans.members(doc, start)):
        if number >= MOST_MEMBERS or len(member.key) > LONGEST_KEY:
            yield None
            return
        yield member
