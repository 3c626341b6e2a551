"""Calls of several rounds, messages that may be sent to an upstream twice, and answers with a link. Pure.

Source of the rules: MCP 2026-07-28, "Multi Round-Trip Requests". A server may answer a call with
``InputRequiredResult``; the client sends the call again with the same arguments and that answer's ``requestState``,
which the server may have bound to the arguments that it saw. A request that needs a person's authorization first is
answered by what its client can do with a link ("Elicitation", URL mode, of 2025-11-25 and 2026-07-28).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from adapter.errors import BadJson, GrantRequired
from adapter.rules.access.principals import Scope
from adapter.wire.envelope import Batch, Envelope, Kind, dump, dump_odd, parse, value_at
from adapter.wire.spans import Drop, edit, find

_FORMAT = 1
STATE = b"requestState"
"""What a message holds in its bytes that has a state, but for one that spells the word with escapes."""

STATES_KEPT = 16
"""States of one call by which it is found again: a client goes on from the last one, or repeats one of the others."""


def state_of(params: object) -> str | None:
    """The ``requestState`` in a request's params or in a result; null counts as absent."""
    state = params.get("requestState") if isinstance(params, dict) else None
    return state if isinstance(state, str) else None


def asks_for_input(message: object) -> str | None:
    """The state of a response, decoded, that asks its client for input and to call again with it."""
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    return state_of(result)


def round_key(scope_id: str, server: str, tool: str, arguments: object, state: str) -> str:
    """Return the digest of a round: everything that makes a request the next round of a call, as 64 hex digits.

    Raises BadJson for arguments that are nested too deeply to be written.
    """
    digest = hashlib.sha256()
    for part in (scope_id, server, tool, state):
        text = part.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "big") + text)
    digest.update(_sorted(arguments))
    return digest.hexdigest()


def _sorted(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return dump_odd(value, sort_keys=True)


@dataclass(slots=True)
class PendingRound:
    """A call whose client is to answer. ``due`` is when it is given up, in Unix seconds.

    ``states`` are the keys of its states, the latest last, each with the server's own state where the client was given
    another text for it. ``notes`` is what the stages have to know of the call in its next round.
    """

    id: str
    scope: Scope
    due: float
    notes: dict[str, Any]
    states: dict[str, str | None] = field(default_factory=dict)

    @property
    def latest(self) -> str | None:
        """The key of the state that its client was given last."""
        return next(reversed(self.states), None)

    def add_state(self, key: str, own: str | None) -> list[str]:
        """Add this key of the round. Return the keys that no longer lead to it."""
        self.states.pop(key, None)
        self.states[key] = own
        gone = list(self.states)[:-STATES_KEPT]
        for each in gone:
            del self.states[each]
        return gone


def encode(pending: PendingRound) -> bytes:
    """The round as one JSON object; ``decode`` gives back an equal one."""
    return json.dumps(
        {
            "format": _FORMAT,
            "id": pending.id,
            "scope": [*pending.scope],
            "due": pending.due,
            "notes": pending.notes,
            "states": pending.states,
        }
    ).encode("ascii")


def decode(data: bytes) -> PendingRound:
    """The round out of a row's value; ValueError if this version cannot read it."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields.pop("format") != _FORMAT:
            raise ValueError("a round of another format")
        fields["scope"] = Scope(*fields["scope"])
        return PendingRound(**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a round") from error


# --- messages that may be sent twice -----------------------------------------------------------------------


READING = frozenset(
    {
        "completion/complete",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    }
)
"""Requests that change nothing, of all protocol versions. ``initialize`` is none of them: it opens a session."""

TELLING = frozenset(
    {
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "notifications/roots/list_changed",
    }
)
"""Notifications of the protocol's own that say the same when they come twice."""

ToolRepeatable = Callable[[str | None], bool]
"""Tells of a tool's name whether calling it twice does no more than calling it once."""


def is_repeatable(message: Envelope | Batch, tool: ToolRepeatable | None) -> bool:
    """Tell whether ``message`` may be sent twice; a batch may where all its members may.

    Without ``tool`` nothing is known of any tool, so no call is repeatable.
    """
    if isinstance(message, Batch):
        return all(is_repeatable(member, tool) for member in message.members)
    if message.kind is Kind.NOTIFICATION:
        return message.method in TELLING
    if message.method == "tools/call":
        return tool is not None and tool(message.name)
    return message.kind is Kind.REQUEST and message.method in READING


def says_repeatable(definition: bytes) -> bool:
    """Tell whether a tool's definition (JSON) has the annotation ``readOnlyHint`` or ``idempotentHint`` (MCP 2025-03-26
    and later, "ToolAnnotations").
    """
    try:
        hints = value_at(parse(definition), "annotations")
    except BadJson:
        return False
    return value_at(hints, "readOnlyHint") is True or value_at(hints, "idempotentHint") is True


# --- answers to requests that need a person's authorization first ----------------------------------------------


INPUT = "mcp-file-adapter/grant"
"""The key of the adapter's own request for input."""

ASKING = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests that may be answered with a wish for input, and that need a grant before they go upstream."""

CAPABILITIES = ("params", "_meta", "io.modelcontextprotocol/clientCapabilities")
"""The place of a modern client's capabilities."""

_RESPONSES = ("params", "inputResponses")

Action = Literal["accept", "decline", "cancel"]


def takes_urls(capabilities: object) -> bool:
    """Tell whether a client with these capabilities has declared that it can show links (elicitation, URL mode)."""
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and isinstance(elicitation.get("url"), dict)


def member_of(body: bytes, path: tuple[str, ...]) -> Any:
    """The value at a path of a message, None where there is none."""
    try:
        span = find(body, path)
        return None if span is None else parse(body[slice(*span)])
    except BadJson:
        return None


def input_required(id_bytes: bytes, error: GrantRequired) -> bytes:
    """The response that asks a modern client to have a link opened, and to call again."""
    link = error.data or {}
    params = {"mode": "url", "url": link.get("url"), "message": link.get("message")}
    request = {"method": "elicitation/create", "params": params}
    return _response(id_bytes, {"resultType": "input_required", "inputRequests": {INPUT: request}})


def tool_error(id_bytes: bytes, error: GrantRequired, *, modern: bool) -> bytes:
    """The result of a failed tool, with the link in its text, for clients that cannot show links by themselves."""
    result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return _response(id_bytes, {"resultType": "complete", **result} if modern else result)


def elicitations(error: GrantRequired) -> Mapping[str, Any]:
    """The data of a URLElicitationRequiredError."""
    return {"elicitations": [error.data or {}]}


def own_input(envelope: Envelope) -> tuple[Action | None, bytes]:
    """The person's answer to the adapter's own wish for input, and the message without it.

    None and the body as it is where there is none: what answers the upstream's wishes stays as it came.
    """
    body = envelope.body
    given = member_of(body, _RESPONSES) if b"inputResponses" in body else None
    if not isinstance(given, dict) or INPUT not in given:
        return None, body
    answer = given[INPUT]
    action = answer.get("action") if isinstance(answer, dict) else None
    left = edit(body, [Drop(_RESPONSES if len(given) == 1 else (*_RESPONSES, INPUT))])
    return action if action in ("accept", "decline") else "cancel", left


def _response(id_bytes: bytes, result: Mapping[str, Any]) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(result) + b"}"
