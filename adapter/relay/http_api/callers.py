"""Callers over HTTP, their requests in the form that ingress gives to those of MCP clients, and what is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.errors import BadJson, UpstreamBroken
from adapter.relay.background import in_turns
from adapter.relay.exchange import POST_FIELDS, ClientRequest, ClientResponse, Sender, forwardable
from adapter.relay.replies import LARGE, too_large
from adapter.relay.server import Server
from adapter.relay.sessions.inner_client import ACCEPT, MODERN_VERSION
from adapter.rules.access.principals import Caller, party_of
from adapter.rules.tools.lists import long_response
from adapter.wire.envelope import METHOD_NOT_FOUND, dump, envelope_of, parse, response_in
from adapter.wire.eras import Era, encode_mirror

NO_INPUT = "The tool asks for more input, which a call over HTTP cannot give."

Message = dict[str, Any]
"""A JSON-RPC message."""

INITIALIZED: Message = {"jsonrpc": "2.0", "method": "notifications/initialized"}

_OWN_FIELDS = POST_FIELDS | {"mcp-method", "mcp-name"}


class ToolRefused(Exception):
    """A request was answered with a JSON-RPC error; ``str`` is its message."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class InputRequired(ToolRefused):
    """A modern server asks its client before it goes on (MCP 2026-07-28, InputRequiredResult). ``requests`` are by
    their keys; ``state`` is given back with the answers.
    """

    def __init__(self, requests: Mapping[str, Any], state: str | None) -> None:
        super().__init__(METHOD_NOT_FOUND, NO_INPUT)
        self.requests = requests
        self.state = state


class Who(NamedTuple):
    """A caller over HTTP, which all requests on one connection share. ``tab`` tells apart what one principal does in
    several places.

    ``base`` is the URL under which it knows the adapter. ``answers`` says that a person is there who can answer what
    servers ask (elicitation).
    """

    caller: Caller
    tab: str | None = None
    base: str = ""
    answers: bool = False

    @property
    def principal(self) -> str:
        """The name of the caller."""
        return self.caller.principal


class KeptSession(NamedTuple):
    """An open legacy session of ``principal`` as any process may go on with it. ``id`` is the adapter's."""

    principal: str
    id: str
    version: str | None


@dataclass(slots=True)
class Asks:
    """Makes requests to ``server``, in the legacy ``session`` once there is one."""

    server: Server
    session: KeptSession | None = None

    def post(
        self, who: Who, era: Era, message: Message, mirrors: Iterable[tuple[str, str]] = ()
    ) -> ClientRequest:
        """A message; ``mirrors`` are further fields that a modern upstream wants of it. Raises BadRequest."""
        headers = [*self._passed(who), ("Content-Type", "application/json")]
        if era is Era.MODERN:
            headers += [*_mirrored(message), *mirrors]
        ask = self._ask(who, era, "POST", headers)
        ask.body = dump(message)
        ask.envelope = envelope_of(message, ask.body)
        return ask

    def listen(self, who: Who, last_id: str) -> ClientRequest:
        """A legacy stream, taken up again behind that event; a new one without any. Raises BadRequest."""
        if not last_id:
            return self._ask(who, Era.LEGACY, "GET", self._passed(who))
        return self._ask(who, Era.LEGACY, "GET", [*self._passed(who), ("Last-Event-ID", last_id)], last_id)

    def end(self, session: KeptSession) -> ClientRequest:
        """The end of the legacy session, without a request of its caller."""
        return self._ask(
            Who(Caller(session.principal, "http")), Era.LEGACY, "DELETE", list(self.server.rules.static)
        )

    def _ask(
        self, who: Who, era: Era, method: str, headers: list[tuple[str, str]], last_id: str | None = None
    ) -> ClientRequest:
        session_id, version = None, None
        if era is Era.MODERN:
            version = MODERN_VERSION
        elif self.session is not None:
            _, session_id, version = self.session
        headers += [("Accept", ACCEPT), ("Accept-Encoding", "identity")]
        if version is not None:
            headers.append(("MCP-Protocol-Version", version))
        party = party_of(who.caller) if self.server.apart else ""
        sender = Sender(era, who.principal, session_id, version, last_id, who.caller, who.base, party)
        return ClientRequest(self.server, method, sender, headers)

    def _passed(self, who: Who) -> list[tuple[str, str]]:
        """The fields of the caller's own request that may go upstream. Raises BadRequest for one that has to."""
        passed = self.server.rules.passed(who.caller.fields.items(), who.caller.withheld)
        passed = forwardable(passed, drop=_OWN_FIELDS)
        return [each for each in passed if not each[0].lower().startswith("mcp-param-")]


# --- answers --------------------------------------------------------------------------------------------------


class StreamEnd(NamedTuple):
    """The response that a stream brought, or the event id to resume it from after ``retry`` milliseconds."""

    response: dict[str, Any] | None
    last_id: bytes = b""
    retry: int | None = None


async def awaited_response(data: bytes, number: int, listed: str | None) -> dict[str, Any] | None:
    """As ``envelope.response_in``; a long list, which stands in ``listed`` of the result, is read in turns."""
    if listed is None or len(data) <= LARGE:
        return response_in(data, number)
    return await in_turns(long_response(data, number, listed))


async def pieces_of(answer: ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes."""
    if isinstance(answer.body, bytes):
        yield answer.body
        return
    async for piece in answer.body:
        yield piece


async def whole_body(answer: ClientResponse, limit: int) -> bytes:
    """The body. Raises UpstreamBroken for one above ``limit`` bytes."""
    if isinstance(answer.body, bytes) and len(answer.body) <= limit:
        return answer.body
    pieces: list[bytes] = []
    size = 0
    async for piece in pieces_of(answer):
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def refused_by_status(status: int) -> UpstreamBroken:
    """The failure that a status without a response means."""
    if status in (401, 403):
        return UpstreamBroken(f"The upstream server refused the caller's credentials (HTTP status {status}).")
    return UpstreamBroken(f"The upstream server answered with HTTP status {status}.")


def refusal(number: Any, code: int, sentence: str) -> Message:
    """A JSON-RPC error in answer to a server's own request."""
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": sentence}}


def object_of(data: bytes) -> dict[str, Any]:
    """A JSON-RPC message, or nothing of it where it is none."""
    try:
        message = parse(data)
    except BadJson:
        return {}
    return message if isinstance(message, dict) else {}


def result_of(response: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a response. Raises ToolRefused, UpstreamBroken."""
    error, result = response.get("error"), response.get("result")
    if isinstance(error, dict):
        code, sentence = error.get("code"), error.get("message")
        raise ToolRefused(
            code if isinstance(code, int) else -32603,
            sentence if isinstance(sentence, str) else "The upstream server refused the request.",
            error.get("data"),
        )
    if not isinstance(result, dict):
        raise UpstreamBroken("The upstream server answered with something that is not a result.")
    kind = result.get("resultType")
    if kind == "input_required":
        requests, state = result.get("inputRequests"), result.get("requestState")
        raise InputRequired(
            requests if isinstance(requests, dict) else {}, state if isinstance(state, str) else None
        )
    if kind not in (None, "complete"):
        raise ToolRefused(METHOD_NOT_FOUND, NO_INPUT)
    return result


def _mirrored(message: Message) -> list[tuple[str, str]]:
    """The headers of a modern request that repeat parts of its body."""
    method, params = message["method"], message["params"]
    name = params.get("uri") if method == "resources/read" else params.get("name")
    mirror = [] if name is None else [("Mcp-Name", encode_mirror(name))]
    return [("Mcp-Method", method), *mirror]
