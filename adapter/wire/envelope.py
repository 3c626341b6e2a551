"""Reading what this proxy needs of a JSON-RPC message, and nothing else: the bytes are what travels on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import orjson

from adapter.errors import BadJson, BadRequest
from adapter.wire import spans

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

_READ_OF_MESSAGE = ("jsonrpc", "id", "method", "params")
_READ_OF_PARAMS = ("name", "uri", "_meta")
_MEANT_IN_MESSAGE = frozenset(_READ_OF_MESSAGE)
_MEANT_IN_PARAMS = frozenset((*_READ_OF_PARAMS, "arguments", "task"))
_EXACT_FLOATS = 2.0**53
_MOST_DIGITS = 4000
# In a large body of few, long strings (a file in base64) the walk is faster than eight counts.
_LARGE = 32 * 1024
_LONG_STRINGS = 1024


class Kind(Enum):
    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


@dataclass(slots=True)
class Envelope:
    """One JSON-RPC message as it came (``body``) and the few of its members the adapter acts on.

    ``method`` is "" for a response; ``failed`` says that a response carries an error. ``name`` is what the
    message is about: ``params.name``, else ``params.uri`` (the other way round for ``resources/…``, which
    know no name; tools and prompts go by their name alone). ``meta_version`` is the protocol version in
    ``params._meta``, "" if it is no string; ``has_modern_meta`` says that ``_meta`` has that key, or one that begins
    like it. ``lookalike`` is a key of a request or its params that is another one but for case: some readers, such as
    Go's encoding/json, take it for that one.
    """

    kind: Kind
    method: str
    id: str | int | float | None
    name: str | None
    meta_version: str | None
    has_modern_meta: bool
    body: bytes
    failed: bool = False
    lookalike: str | None = None

    @property
    def id_bytes(self) -> bytes:
        """The id exactly as the body spells it, ``null`` if it has none."""
        if type(self.id) is int and self.id:
            # JSON has one spelling of an integer, but for zero's, which may have a sign.
            return b"%d" % self.id
        span = spans.find(self.body, ("id",))
        return b"null" if span is None else self.body[span[0] : span[1]]


@dataclass(slots=True)
class Batch:
    """Several messages in one body (MCP 2025-03-26 only); each member's ``body`` is its own bytes of it."""

    members: list[Envelope]
    body: bytes


def read_envelope(body: bytes) -> Envelope | Batch:
    """Read one body. Raises BadJson (no JSON in UTF-8) or BadRequest (JSON, but no message to pass on).

    A message in which a member that is read here appears twice is refused: the upstream may read the other.
    """
    return envelope_of(parse(body), body)


def envelope_of(message: Any, body: bytes) -> Envelope | Batch:
    """As ``read_envelope``, for who has parsed ``body`` already. Raises BadRequest."""
    if isinstance(message, dict):
        return _envelope(message, body)
    if not isinstance(message, list):
        raise BadRequest("A JSON-RPC message is an object, or an array of objects.")
    if not message:
        raise BadRequest("A JSON-RPC batch holds at least one message.")
    members = []
    for member, (start, end) in zip(message, spans.items(body), strict=True):
        if not isinstance(member, dict):
            raise BadRequest("A JSON-RPC batch holds objects only.")
        members.append(_envelope(member, body[start:end]))
    return Batch(members, body)


def answers(data: bytes, request_id: str | int | float | None) -> bool:
    """Whether ``data`` is the JSON-RPC response to that request: its id, or an error that names no id.

    Ids compare as JSON does: 1 is 1.0, but neither "1" nor true. What is no JSON answers nothing.
    """
    return response_in(data, request_id) is not None


def response_in(data: bytes, request_id: str | int | float | None) -> dict[str, Any] | None:
    """The JSON-RPC response that ``data`` is to that request, as ``answers`` has it; None if it is none."""
    # A backslash may hide an escaped spelling of either key; without one, their absence settles it.
    if b'"result"' not in data and b'"error"' not in data and b"\\" not in data:
        return None
    try:
        message = parse(data)
    except BadJson:
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    found = message.get("id")
    if found is None:
        return message if "error" in message else None
    if isinstance(found, bool) or ("result" not in message and "error" not in message):
        return None
    return message if _exact(found, data) == request_id else None


def parse(body: bytes) -> Any:
    """The JSON value of ``body``, also where that is legal and odd. Raises BadJson."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_patiently(body)


def dump(value: Any) -> bytes:
    """A value as JSON, also where a text in it holds what UTF-8 cannot."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # In ASCII a lone surrogate, which a file's name may hold, is legal.
        return json.dumps(value).encode("ascii")


def _parse_patiently(body: bytes) -> Any:
    """What orjson refuses may be legal all the same: lone surrogate escapes, 1e999, more than 1024 levels."""
    try:
        return _PATIENT.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadJson from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _integer(digits: str) -> int | float:
    # int() of a text longer than sys.get_int_max_str_digits() raises; such a number is legal JSON.
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


_PATIENT = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)


def _envelope(message: dict[str, Any], body: bytes) -> Envelope:
    if message.get("jsonrpc") != "2.0":
        raise BadRequest('A JSON-RPC message says "jsonrpc": "2.0".')
    number = message.get("id")
    if type(number) is not int and number is not None:
        number = _valid_id(number, body)
    method = message.get("method")
    if not isinstance(method, str):
        if "method" not in message:
            return _response(message, number, body)
        raise BadRequest("The method of a JSON-RPC message is a string.")
    if number is None and "id" in message:
        raise BadRequest("The id of a JSON-RPC request is a string or a number, not null.")
    params = message.get("params")
    name = version = None
    modern = False
    lookalike = _lookalike(message, _MEANT_IN_MESSAGE)
    if isinstance(params, dict):
        lookalike = lookalike or _lookalike(params, _MEANT_IN_PARAMS)
        name = _name(method, params)
        meta = params.get("_meta")
        if isinstance(meta, dict):
            version, modern = _version(meta)
    elif "params" in message and not isinstance(params, list):
        raise BadRequest("The params of a JSON-RPC message are an object or an array.")
    _refuse_ambiguity(message, params, body)
    kind = Kind.NOTIFICATION if number is None else Kind.REQUEST
    return Envelope(kind, method, number, name, version, modern, body, lookalike=lookalike)


def _response(message: dict[str, Any], number: str | int | float | None, body: bytes) -> Envelope:
    failed = "error" in message
    if not failed and "result" not in message:
        raise BadRequest("A JSON-RPC message has a method, a result or an error.")
    _refuse_ambiguity(message, None, body)
    return Envelope(Kind.RESPONSE, "", number, None, None, False, body, failed)


def _valid_id(value: object, body: bytes) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("The id of a JSON-RPC message is a string or a number.")
    return _exact(value, body)


def _exact(value: str | int | float, body: bytes) -> str | int | float:
    """The id unrounded: orjson makes a float of an integer beyond 64 bits, and two ids could become one."""
    if not isinstance(value, float) or abs(value) < _EXACT_FLOATS:
        return value
    span = spans.find(body, ("id",))
    assert span is not None, "the id was just read from these bytes"
    exact: int | float = _PATIENT.decode(body[span[0] : span[1]].decode("ascii"))
    return exact


def _name(method: str, params: dict[str, Any]) -> str | None:
    name, uri = params.get("name"), params.get("uri")
    if method.startswith(("tools/", "prompts/")):
        return name if isinstance(name, str) else None
    if isinstance(uri, str) and (not isinstance(name, str) or method.startswith("resources/")):
        return uri
    return name if isinstance(name, str) else None


def _lookalike(members: dict[str, Any], meant: frozenset[str]) -> str | None:
    if meant.issuperset(members):
        return None
    return next((key for key in members if key not in meant and key.casefold() in meant), None)


def _version(meta: dict[str, Any]) -> tuple[str | None, bool]:
    value = meta.get(VERSION_KEY)
    if isinstance(value, str):
        return value, True
    if value is not None:
        return "", True
    for key in meta:
        if key.startswith(VERSION_KEY):
            return None, True
    return None, False


def _refuse_ambiguity(message: dict[str, Any], params: Any, body: bytes) -> None:
    if _surely_unique(message, params, body):
        return
    _refuse_twice(body, (), _READ_OF_MESSAGE)
    if isinstance(params, dict):
        _refuse_twice(body, ("params",), _READ_OF_PARAMS)
        if isinstance(params.get("_meta"), dict):
            _refuse_twice(body, ("params", "_meta"), (VERSION_KEY,))


def _surely_unique(message: dict[str, Any], params: Any, body: bytes) -> bool:
    r"""True only if no member that is read appears twice; counting costs a tenth of a walk over the spans.

    Each of these names is ASCII without escapes of its own, so an unusual spelling needs a ``\u00``; the
    slash in VERSION_KEY may also be ``\/``, and its needle begins behind that.
    """
    count = body.count
    if len(body) > _LARGE and count(b'"') * _LONG_STRINGS < len(body):
        return False
    if count(b"\\u00") or count(b'"jsonrpc"') != 1 or count(b'"id"') > 1 or count(b'"method"') > 1:
        return False
    if "params" not in message:
        return True
    if count(b'"params"') != 1:
        return False
    if not isinstance(params, dict):
        return True
    if "uri" in params and count(b'"uri"') != 1:
        return False
    meta = params.get("_meta")
    if "_meta" in params and count(b'"_meta"') != 1:
        return False
    if "name" in params and count(b'"name"') != 1 + _names_elsewhere(params, meta):
        return False
    return not isinstance(meta, dict) or VERSION_KEY not in meta or count(b'/protocolVersion"') == 1


def _names_elsewhere(params: dict[str, Any], meta: Any) -> int:
    """How many members called "name" sit where calls usually have some: arguments and client info."""
    arguments = params.get("arguments")
    found = 1 if isinstance(arguments, dict) and "name" in arguments else 0
    if isinstance(meta, dict):
        client = meta.get("io.modelcontextprotocol/clientInfo")
        if isinstance(client, dict) and "name" in client:
            found += 1
    return found


def _refuse_twice(body: bytes, path: tuple[str, ...], names: tuple[str, ...]) -> None:
    span = spans.find(body, path)
    assert span is not None, "the object was just read from these bytes"
    seen = set()
    for member in spans.members(body, span[0]):
        if member.key in names:
            if member.key in seen:
                raise BadRequest(f'The member "{member.key}" appears twice in one object of the message.')
            seen.add(member.key)
