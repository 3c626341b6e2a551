"""The HTTP tool API: the arguments in a request's body, and the answers. Pure.

Answers of calls are MCP's CallToolResult; refusals, which come before anything ran, are ``{"error": sentence}``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from adapter.rules.results.outcomes import ERROR_KEY, TRACE_KEY, text_block
from adapter.rules.text.json_values import compact, plain
from adapter.wire.piecewise import Piecewise

InvalidJson = Literal["empty", "reject"]
"""What a body is that cannot be read: no arguments, or refused."""

WARNING = "The body is not valid JSON; the tool was called without arguments."
"""What an answer says beside its result when an unreadable body was taken for no arguments."""

_MAPPINGS = (dict, Mapping)  # nearly all are dicts, and an abstract class takes its time
_SAID_ANEW = ("resultType", "_meta", "isError")
_OF_THE_PROTOCOL = "io.modelcontextprotocol/"
_MOST_DIGITS = 4000
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


class HttpOutcome(NamedTuple):
    """An HTTP status and the JSON that goes with it; ``challenge`` is the value of its WWW-Authenticate, if any."""

    status: int
    body: bytes
    challenge: str | None = None


class Arguments(NamedTuple):
    """The arguments that a tool is called with.

    ``warning`` is for the caller, where the body of its request was not what it should be. ``continued`` has the
    answers to what the tool asked before it goes on, if it did: ``inputResponses`` and ``requestState``.
    """

    value: dict[str, Any]
    warning: str | None = None
    continued: Mapping[str, Any] | None = None


def _spelled(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return compact(value).encode()


def refused(status: int, sentence: str) -> HttpOutcome:
    """A refusal: nothing has run."""
    return HttpOutcome(status, _spelled({"error": sentence}))


DISABLED = refused(403, "Tool execution is disabled.")
UNAUTHORIZED = refused(401, "Unauthorized")
NOT_JSON_TYPE = refused(415, "Send the body with Content-Type: application/json.")


def unknown_tool(name: str) -> HttpOutcome:
    """The refusal of a name that is not on the list."""
    return refused(404, f"Tool not found: {name}")


def too_large(limit: int) -> HttpOutcome:
    """The refusal of a body above ``limit`` bytes."""
    return refused(413, f"The body is larger than the {limit} bytes that console.max_body allows.")


# --- tools ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiTool:
    """A tool as the API shows it. ``title`` and ``annotations`` are None where there are none."""

    name: str
    title: str | None
    description: str
    annotations: dict[str, Any] | None
    input_schema: Any

    @classmethod
    def of(cls, tool: Any) -> ApiTool | None:
        """Return a tool of a list, whose members are a mapping's or attributes; None for one without a name."""
        name = _member(tool, "name")
        if not isinstance(name, str):
            return None
        description = _member(tool, "description")
        annotations = as_plain(_member(tool, "annotations"))
        shown = (
            {key: value for key, value in annotations.items() if value is not None}
            if isinstance(annotations, dict)
            else None
        )
        schema = as_plain(input_schema_of(tool))
        title = _member(tool, "title")
        told = "" if description is None else str(description)
        return cls(name, title if isinstance(title, str) else None, told, shown or None, schema)

    def listed(self) -> dict[str, Any]:
        """As one of the list."""
        shown: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.title is not None:
            shown["title"] = self.title
        if self.annotations is not None:
            shown["annotations"] = self.annotations
        return shown

    def detailed(self) -> dict[str, Any]:
        """By itself, with the schema of its arguments."""
        return {**self.listed(), "inputSchema": {} if self.input_schema is None else self.input_schema}


def tool_list(tools: Iterable[Any]) -> Piecewise[HttpOutcome]:
    """The answer to ``GET /tools``."""
    return value_list(tool.listed() for tool in map(ApiTool.of, tools) if tool is not None)


def tool_detail(tool: ApiTool) -> HttpOutcome:
    """The answer to ``GET /tools/{name}``."""
    return HttpOutcome(200, _spelled(tool.detailed()))


def is_destructive(tool: Any) -> bool:
    """Tell whether a tool is declared as destructive."""
    annotations = _member(tool, "annotations")
    if not isinstance(annotations, _MAPPINGS):
        annotations = as_plain(annotations)
    return isinstance(annotations, _MAPPINGS) and annotations.get("destructiveHint") is True


def input_schema_of(tool: Any) -> Any:
    """The schema of a tool's arguments, as the tool has it; None where it has none."""
    schema = _member(tool, "inputSchema")
    return _member(tool, "input_schema") if schema is None else schema


# --- arguments ------------------------------------------------------------------------------------------------


def arguments_of(raw: bytes, policy: InvalidJson, *, destructive: bool = False) -> Arguments | HttpOutcome:
    """Return the arguments in the body of a call, or its refusal. No body means no arguments.

    Invalid JSON goes by ``policy``, and is refused for ``destructive`` tools; JSON that is not an object is refused
    for all.
    """
    if not raw.strip():
        return Arguments({})
    try:
        value = _read(raw)
    except _Unusable as error:
        return refused(400, str(error))
    except ValueError as error:
        if policy == "reject" or destructive:
            return refused(400, f"The body is not valid JSON: {error}")
        return Arguments({}, WARNING)
    if not isinstance(value, dict):
        return refused(400, "The body must be a JSON object with the tool's arguments by name.")
    return Arguments(value)


CONTINUED = ("inputResponses", "requestState")
"""The members of a request that goes on after the server asked for input (MCP 2026-07-28)."""


def continued_arguments(raw: bytes) -> Arguments | HttpOutcome:
    """Return the arguments and the answers in the body of a call that goes on, or its refusal."""
    body = json_object(raw)
    if isinstance(body, HttpOutcome):
        return body
    arguments, continued = body.get("arguments", {}), continued_in(body)
    if not isinstance(arguments, dict) or isinstance(continued, HttpOutcome) or not continued:
        return refused(400, "The body must have arguments, inputResponses and requestState.")
    return Arguments(arguments, continued=continued)


def continued_in(body: Mapping[str, Any]) -> dict[str, Any] | HttpOutcome:
    """Return the answers in the body of a request that goes on, none in that of a first one, or its refusal."""
    found = {name: body[name] for name in CONTINUED if body.get(name) is not None}
    if not isinstance(found.get("inputResponses", {}), dict) or not isinstance(
        found.get("requestState", ""), str
    ):
        return refused(400, "inputResponses must be an object, and requestState a string.")
    return found


def json_object(raw: bytes) -> dict[str, Any] | HttpOutcome:
    """Return the JSON object in a body, or its refusal."""
    try:
        value = _read(raw)
    except ValueError as error:
        return refused(400, f"The body is not valid JSON: {error}")
    return value if isinstance(value, dict) else refused(400, "The body must be a JSON object.")


class _Unusable(ValueError):
    """JSON, or nearly so, that no arguments can be made of."""


def _read(raw: bytes) -> Any:
    """The JSON value. Raises ValueError with the place, and _Unusable."""
    # orjson makes a float of an integer beyond 64 bits, and the tool is to get the number that was sent.
    if _LONG_NUMBER.search(raw) is None:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    # It also refuses what is legal, such as lone surrogates; and only a second look tells NaN from nonsense.
    odd: list[str] = []

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            odd.append(text)
        return value

    def integer(digits: str) -> float:
        return int(digits) if len(digits) <= _MOST_DIGITS else number(digits)

    decoder = json.JSONDecoder(parse_constant=number, parse_float=number, parse_int=integer)
    try:
        value = decoder.decode(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8.") from None
    except RecursionError:
        raise _Unusable("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}.") from None
    if odd:
        raise _Unusable(f"{odd[0][:20]} is not a number in JSON.")
    return value


# --- results --------------------------------------------------------------------------------------------------


def result_body(result: Mapping[str, Any], trace_id: Any = None) -> HttpOutcome:
    """The answer to a call that came to its end: 200, or 500 where the tool says that it failed.

    A call that a plan's auth stage refused is answered as one refused at the door. ``_meta`` is there only where it
    holds something. Raises NotJson for content that no JSON can say.
    """
    failed = result.get("isError") is True
    meta = result.get("_meta")
    rest = dict(meta) if isinstance(meta, _MAPPINGS) else {}
    error = rest.pop(ERROR_KEY, None)
    if failed and isinstance(error, _MAPPINGS) and error.get("stage") == "auth":
        return UNAUTHORIZED
    rest = _meta_for_callers(rest, trace_id)
    body: dict[str, Any] = {"content": [], **result}
    for member in _SAID_ANEW:
        body.pop(member, None)
    body["isError"] = failed
    if rest:
        body["_meta"] = rest
    return HttpOutcome(500 if failed else 200, _spelled(body))


def _meta_for_callers(meta: dict[str, Any], trace_id: Any) -> dict[str, Any]:
    """The part of a result's ``_meta`` that is sent over HTTP.

    It has nothing of the protocol's own, and a trace only where there is one.
    """
    trace = trace_id if trace_id is not None else meta.get(TRACE_KEY)
    shown = {
        key: value
        for key, value in meta.items()
        if key != TRACE_KEY and not str(key).startswith(_OF_THE_PROTOCOL)
    }
    if trace is not None and trace != "":
        shown[TRACE_KEY] = str(trace)
    return shown


def value_body(value: Mapping[str, Any]) -> HttpOutcome:
    """Return an answer of MCP as it is, without what is the protocol's own."""
    return HttpOutcome(200, _spelled({key: each for key, each in value.items() if key != "resultType"}))


def value_list(values: Iterable[Any]) -> Piecewise[HttpOutcome]:
    """Return a list of MCP, member by member as it is."""
    shown: list[bytes] = []
    for each in values:
        shown.append(_spelled(each))
        yield None
    return HttpOutcome(200, b"[" + b",".join(shown) + b"]")


def failure_body(message: str) -> HttpOutcome:
    """Return the answer to a call that raised: the message and nothing else."""
    return HttpOutcome(500, _spelled({"content": [text_block(message)], "isError": True}))


def as_plain(value: Any) -> Any:
    """A value of a host's as JSON knows it; a model of pydantic's says itself under its wire names, without nulls.

    Raises NotJson.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(by_alias=True, exclude_none=True, mode="json")
    return plain(value)


# --- validation -----------------------------------------------------------------------------------------------

Errors = Sequence[Mapping[str, str]]
"""What is wrong with arguments, each as ``{path, message, keyword}``, the path a JSON Pointer."""


def validated_arguments(raw: bytes) -> dict[str, Any] | HttpOutcome:
    """Return the arguments in a body that is only to be validated, or the reason why there are none."""
    try:
        value = _read(raw) if raw.strip() else {}
    except ValueError as error:
        return _invalid(400, [{"path": "", "message": f"Invalid JSON: {error}", "keyword": "format"}])
    if not isinstance(value, dict):
        return _invalid(200, [{"path": "", "message": "The arguments must be an object.", "keyword": "type"}])
    return value


def validation(errors: Errors) -> HttpOutcome:
    """Return the answer to validated arguments."""
    return _invalid(200, errors) if errors else HttpOutcome(200, _spelled({"valid": True}))


def _invalid(status: int, errors: Errors) -> HttpOutcome:
    return HttpOutcome(status, _spelled({"valid": False, "errors": [dict(error) for error in errors]}))


def _member(tool: Any, name: str) -> Any:
    return tool.get(name) if isinstance(tool, _MAPPINGS) else getattr(tool, name, None)
