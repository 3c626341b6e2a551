"""Reading what this proxy needs of a JSON-RPC message, and nothing else: the bytes are what travels on.

Trace context of W3C is a part of it: the field ``traceparent``, in ``params._meta`` of a message (MCP, SEP-414). All
other bytes of a message keep their place and their spelling.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

import orjson
from pydantic_core import from_json

from adapter.errors import AdapterError, BadJson, BadRequest
from adapter.wire import spans
from adapter.wire.ambiguity import doubt_of
from adapter.wire.names import VERSION_KEY
from adapter.wire.scan import TEXT, has_more_values, is_rare
from adapter.wire.spans import Insert, edit

TRACEPARENT = "traceparent"

LARGEST_EDITED = 1 << 18
"""Bytes of a message that is edited. A larger one keeps its bytes, and header fields alone carry its trace."""

NO_META: Final = object()
"""In place of a value: the message has no object at ``params._meta``."""

_LONGEST = 512


def short_text(value: object) -> str | None:
    """The value if it is a text that may be a ``traceparent``, else None."""
    return value if isinstance(value, str) and len(value) <= _LONGEST else None


def with_traceparent(body: bytes, traceparent: str) -> bytes:
    """A message of JSON-RPC with this value at ``params._meta.traceparent``, in place of the one that is there.

    A message above ``LARGEST_EDITED`` bytes is returned as it is, and one whose ``params`` or ``_meta`` cannot have
    members.
    """
    if len(body) > LARGEST_EDITED:
        return body
    try:
        return edit(body, [Insert(("params", "_meta", TRACEPARENT), b'"%b"' % traceparent.encode("ascii"))])
    except ValueError:
        return body


METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602
"""Codes of JSON-RPC 2.0, "Error object"."""

RESOURCE_NOT_FOUND = -32002
"""The code of that error through MCP 2025-11-25, which is INVALID_PARAMS since."""

LONGEST_ID = 1024
"""Characters of an id: it stands in every answer, and is remembered while one is waited for."""

ODD_VALUES = 50_000
"""Values of a JSON text that only a slower parser reads: it takes five times as long for each."""

_NO_ID = (bool, list, dict)
_LARGE = 1 << 18
_LONG_STRINGS = 1024
_EXACT_FLOATS = 2.0**53
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1
# int() of a text longer than sys.get_int_max_str_digits() raises, and takes time in the square of its length.
_MOST_DIGITS = 4000
_FEW_DIGITS = 400


class Kind(Enum):
    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


REQUEST: Final = Kind.REQUEST
NOTIFICATION: Final = Kind.NOTIFICATION
RESPONSE: Final = Kind.RESPONSE
"""The same under shorter names: in Python 3.11, to read a member of an Enum takes longer than a function call."""


KEPT_META = 16 * 1024
"""Bytes of what a client says of itself that are kept with a message which was sent."""

SHORT = 1024
"""Bytes of a message that is kept as it is."""


class MetaVersion(NamedTuple):
    """The protocol version in ``params._meta``: None without one, "" if it is no string.

    ``is_modern``: ``_meta`` has the key of the version, or one that begins like it.
    """

    version: str | None
    is_modern: bool


NO_VERSION = MetaVersion(None, False)


@dataclass(slots=True)
class Envelope:
    """One JSON-RPC message as it came (``body``) and the few of its members the adapter acts on.

    ``method`` is "" for a response; ``failed`` says that a response carries an error. ``name`` is what the
    message is about: ``params.name``, else ``params.uri`` (the other way round for ``resources/…``, which
    know no name; tools and prompts go by their name alone). ``doubt`` is the sentence on what other readers of JSON
    could take for something else in it (see ambiguity), None where there is nothing. ``trace`` is the value at
    ``params._meta.traceparent``, None if it is no short text, or NO_META.
    """

    kind: Kind
    method: str
    id: str | int | float | None
    name: str | None
    meta: MetaVersion
    body: bytes
    doubt: str | None = None
    failed: bool = field(default=False, init=False)
    trace: object = field(default=NO_META, init=False, compare=False)

    @property
    def id_bytes(self) -> bytes:
        """The id exactly as the body spells it, ``null`` if it has none."""
        if type(self.id) is int and self.id:
            # JSON has one spelling of an integer, but for zero's, which may have a sign.
            return b"%d" % self.id
        span = spans.find(self.body, ("id",))
        return b"null" if span is None else self.body[span[0] : span[1]]

    def with_body(self, body: bytes) -> Envelope:
        """The same message where other members of its body have changed than those that are read here."""
        other = Envelope(self.kind, self.method, self.id, self.name, self.meta, body, self.doubt)
        other.trace, other.failed = self.trace, self.failed
        return other

    def shrink(self) -> None:
        """Keep nothing of the body but the id, and ``params._meta`` of at most ``KEPT_META`` bytes: the message has
        been sent, and what is still to be asked in its name needs no more.
        """
        if len(self.body) <= SHORT:
            return
        span = spans.find(self.body, ("params", "_meta")) if self.meta.is_modern else None
        meta = self.body[slice(*span)] if span is not None and span[1] - span[0] <= KEPT_META else b"{}"
        self.body = b'{"id":' + self.id_bytes + b',"params":{"_meta":' + meta + b"}}"


@dataclass(slots=True)
class Batch:
    """Several messages in one body (MCP 2025-03-26 only); each member's ``body`` is its own bytes of it."""

    members: list[Envelope]
    body: bytes

    def shrink(self) -> None:
        """Keep nothing of the bodies but the ids; see Envelope."""
        self.body = b""
        for member in self.members:
            member.shrink()


def read_envelope(body: bytes, most: int | None = None) -> Envelope | Batch:
    """Read one body. Raises BadJson (no JSON in UTF-8) or BadRequest (JSON, but no message to pass on).

    A message in which a member that is read here appears twice is refused: the upstream may read the other. So is a
    batch of more than ``most`` messages.
    """
    message = parse(body)
    if type(message) is not dict:
        return envelope_of(message, body, most)
    try:
        return _envelope(message, body)
    except BadRequest as error:
        error.id_bytes = _id_of_refused(message, body)
        raise


def envelope_of(message: Any, body: bytes, most: int | None = None) -> Envelope | Batch:
    """As ``read_envelope``, for who has parsed ``body`` already. Raises BadRequest."""
    if isinstance(message, dict):
        return _envelope(message, body)
    if not isinstance(message, list):
        raise BadRequest("A JSON-RPC message must be an object, or an array of objects.")
    if not message:
        raise BadRequest("A JSON-RPC batch must have at least one message.")
    if most is not None and len(message) > most:
        raise BadRequest(f"The batch has {len(message)} messages, and at most {most} are allowed.")
    members = []
    for member, (start, end) in zip(message, spans.items(body), strict=True):
        if not isinstance(member, dict):
            raise BadRequest("A JSON-RPC batch must only contain objects.")
        members.append(_envelope(member, body[start:end]))
    return Batch(members, body)


def answers(data: bytes, request_id: str | int | float | None) -> bool:
    """Tell whether ``data`` is the JSON-RPC response to that request: its id, or an error that names no id.

    Ids compare as JSON does: 1 is 1.0, but neither "1" nor true. What is no JSON answers nothing.
    """
    response = read_response(data)
    return response is not None and (response.id is None or response.id == request_id)


def response_in(
    data: bytes, request_id: str | int | float | None, message: Any = None
) -> dict[str, Any] | None:
    """The JSON-RPC response that ``data`` is to that request, as ``answers`` has it; None if it is none.

    ``message`` is its JSON value, where that was parsed.
    """
    response = read_response(data, message)
    if response is None or (response.id is not None and response.id != request_id):
        return None
    return response.message


class RpcResponse(NamedTuple):
    """A JSON-RPC response that has been parsed. ``id`` None is that of an error which may be any request's."""

    id: str | int | float | None
    message: dict[str, Any]


def read_response(data: bytes, message: Any = None) -> RpcResponse | None:
    """The JSON-RPC response that ``data`` is, with its exact id; None if it is none. ``message`` as above."""
    # A backslash may hide an escaped spelling of either key; without one, their absence settles it.
    if b'"result"' not in data and b'"error"' not in data and b"\\" not in data:
        return None
    try:
        message = parse(data) if message is None else message
    except BadJson:
        return None
    if not isinstance(message, dict) or "method" in message:
        return None
    found = message.get("id")
    if found is None:
        return RpcResponse(None, message) if "error" in message else None
    if isinstance(found, _NO_ID) or ("result" not in message and "error" not in message):
        return None
    return RpcResponse(_exact(found, data) if isinstance(found, float) else found, message)


def parse(body: bytes) -> Any:
    """The JSON value of ``body``, also where that is legal and odd. Raises BadJson."""
    try:
        return orjson.loads(body) if len(body) < _LARGE else _parse_large(body)
    except orjson.JSONDecodeError:
        return _parse_patiently(body)


def _parse_large(body: bytes) -> Any:
    """As orjson does, long plain strings (a file in base64) in a third of its time.

    What is made is no garbage yet; to look for some, again and again, takes most of the time.
    """
    if _is_long_strings(body):
        # What only one of the two refuses is left to those who know it: a number too large, many levels.
        with contextlib.suppress(ValueError):
            found = from_json(body, allow_inf_nan=False, cache_strings="none")
            if not _has_floats_to_be(found):
                return found
    if not gc.isenabled():
        return orjson.loads(body)
    gc.disable()
    try:
        return orjson.loads(body)
    finally:
        gc.enable()


def _is_long_strings(body: bytes) -> bool:
    """Tell whether most of a text are long strings without escapes, and few other values; that they are ASCII is judged
    by its middle.
    """
    few = len(body) // _LONG_STRINGS
    middle = len(body) // 2
    return all(is_rare(body, each, few) for each in (b'"', b"\\", b",")) and (
        body[middle : middle + TEXT].isascii()
    )


def _has_floats_to_be(value: Any) -> bool:
    """Tell whether there is an integer that orjson reads as a float: it must not depend on the strings beside it which
    of both it is.
    """
    todo = [value]
    while todo:
        item = todo.pop()
        if type(item) is int:
            if not _LEAST_INTEGER <= item <= _MOST_INTEGER:
                return True
        elif type(item) is dict:
            todo += item.values()
        elif type(item) is list:
            todo += item
    return False


def value_at(value: Any, *names: str) -> Any:
    """The value to which the names of members lead, None where there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def list_at(value: Any, *names: str) -> list[Any]:
    """The list to which the names of members lead, an empty one where there is none."""
    found = value_at(value, *names)
    return found if isinstance(found, list) else []


def dump(value: Any) -> bytes:
    """A value as JSON, also where a text in it holds what UTF-8 cannot, as a file's name may. Raises BadJson."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return dump_odd(value)


def dump_odd(value: Any, *, sort_keys: bool = False) -> bytes:
    """A value as JSON in ASCII, in which lone surrogates are legal. Raises BadJson for one that is nested too deep."""
    try:
        return json.dumps(value, sort_keys=sort_keys).encode("ascii")
    except RecursionError:
        raise BadJson("This JSON is nested too deep to be written again.") from None


def _parse_patiently(body: bytes) -> Any:
    """Parse what orjson refuses though it may be legal: lone surrogate escapes, 1e999."""
    if has_more_values(body, ODD_VALUES):
        raise BadJson(
            f"JSON with unpaired surrogates or very large numbers may have at most {ODD_VALUES} values."
        )
    try:
        return _PATIENT.decode(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadJson from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)


def _integer(digits: str, most: int = _FEW_DIGITS) -> int | float:
    return int(digits) if len(digits) <= most else float(digits)


_PATIENT = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=_integer)
_EXACT = json.JSONDecoder(parse_int=partial(_integer, most=_MOST_DIGITS))


def _envelope(message: dict[str, Any], body: bytes) -> Envelope:
    if message.get("jsonrpc") != "2.0":
        raise BadRequest('A JSON-RPC message must have "jsonrpc": "2.0".')
    number = message.get("id")
    if type(number) is not int and number is not None:
        number = _valid_id(number, body)
    method = message.get("method")
    if type(method) is not str:
        if "method" not in message:
            return _response(message, number, body)
        raise BadRequest("The method of a JSON-RPC message must be a string.")
    if number is None and "id" in message:
        raise BadRequest("The id of a JSON-RPC request must be a string or a number, not null.")
    params = message.get("params")
    name, version = None, NO_VERSION
    trace: object = NO_META
    if type(params) is dict:
        name = _name(method, params)
        meta = params.get("_meta")
        if type(meta) is dict:
            version = _version(meta)
            trace = meta.get(TRACEPARENT)
            if trace is not None:
                trace = short_text(trace)
    elif "params" in message and not isinstance(params, list):
        raise BadRequest("The params of a JSON-RPC message must be an object or an array.")
    doubt = doubt_of(message, body)
    kind = NOTIFICATION if number is None else REQUEST
    envelope = Envelope(kind, method, number, name, version, body, doubt)
    envelope.trace = trace
    return envelope


def _id_of_refused(message: dict[str, Any], body: bytes) -> bytes | None:
    """The id under which a request is refused; None for a response, and where there is no valid one."""
    if message.get("id") is None or "result" in message or "error" in message:
        return None
    with contextlib.suppress(BadRequest):
        _valid_id(message["id"], body)
        start, end = _span_of_id(body)
        return body[start:end]
    return None


def _response(message: dict[str, Any], number: str | int | float | None, body: bytes) -> Envelope:
    failed = "error" in message
    if not failed and "result" not in message:
        raise BadRequest("A JSON-RPC message must have a method, a result or an error.")
    envelope = Envelope(Kind.RESPONSE, "", number, None, NO_VERSION, body, doubt_of(message, body))
    envelope.failed = failed
    return envelope


def _valid_id(value: object, body: bytes) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("The id of a JSON-RPC message must be a string or a number.")
    if isinstance(value, str):
        size = len(value)
    else:
        start, end = _span_of_id(body) if isinstance(value, float) else (0, 0)
        size = end - start
    if size > LONGEST_ID:
        raise BadRequest(f"The id of a JSON-RPC message may have at most {LONGEST_ID} characters.")
    return _exact(value, body)


def _exact(value: str | int | float, body: bytes) -> str | int | float:
    """The id unrounded: orjson makes a float of an integer beyond 64 bits, and two ids could become one."""
    if not _is_rounded(value):
        return value
    start, end = _span_of_id(body)
    exact: int | float = _EXACT.decode(body[start:end].decode("ascii"))
    return exact


def _is_rounded(value: object) -> bool:
    return isinstance(value, float) and abs(value) >= _EXACT_FLOATS


def _span_of_id(body: bytes) -> spans.Span:
    span = spans.find(body, ("id",))
    assert span is not None, "the id was just read from these bytes"
    return span


def _name(method: str, params: dict[str, Any]) -> str | None:
    name = params.get("name")
    if type(name) is str and not method.startswith("resources/"):
        return name
    uri = params.get("uri")
    if type(uri) is str and not method.startswith(("tools/", "prompts/")):
        return uri
    return name if type(name) is str else None


def _version(meta: dict[str, Any]) -> MetaVersion:
    value = meta.get(VERSION_KEY)
    if value is not None:
        return MetaVersion(value if isinstance(value, str) else "", True)
    for key in meta:
        if key.startswith(VERSION_KEY):
            return MetaVersion(None, True)
    return NO_VERSION


def failure(error: AdapterError, id_bytes: bytes = b"null") -> bytes:
    """The response to the request whose id is spelled ``id_bytes`` (JSON), as JSON without line breaks."""
    return error_response(id_bytes, error.rpc, str(error), error.data)


def error_response(id_bytes: bytes, code: int, message: str, data: Mapping[str, Any] | None = None) -> bytes:
    """A JSON-RPC error response, for codes that are the protocol's own and in no catalogue of ours."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"error":' + dump(body) + b"}"
