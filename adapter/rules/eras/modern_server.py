"""Messages between a legacy client and a modern server (MCP 2026-07-28), as the other side reads them. Pure.

A request gets what 2026-07-28 has in each request's ``_meta``; answers and notifications come back in the words of the
client's revision; what the server wants to know in the middle of a call becomes requests to the client, and their
answers the next round. What is not about the era keeps its bytes.

Source of the rules: MCP 2026-07-28, "Key Changes" and "Multi Round-Trip Requests"; MCP 2025-11-25, "Elicitation"; the
schemas of both revisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from adapter.errors import BadJson, UpstreamBroken
from adapter.rules.eras.legacy_server import CAPABILITIES_KEY, SERVER_INFO_KEY
from adapter.wire.envelope import INVALID_PARAMS, NO_META, RESOURCE_NOT_FOUND, Envelope, dump, parse
from adapter.wire.eras import LEGACY_VERSIONS, MODERN_VERSIONS, encode_mirror
from adapter.wire.names import SUBSCRIPTION_KEY, VERSION_KEY
from adapter.wire.scan import members
from adapter.wire.spans import Drop, Edit, Insert, Replace, edit, find

PREFIX = "io.modelcontextprotocol/"
INFO_KEY = PREFIX + "clientInfo"
MODERN_VERSION = MODERN_VERSIONS[-1]

LONGEST_META = 16 << 10
"""Bytes of what a client says of itself at ``initialize``: each of its requests carries them to the server."""

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PARAMS, _META = b'"params":{', b'"_meta":{'
_NOT_CARRIED = ("tasks",)
"""Capabilities that mean something else in the other era, or nothing."""


class ClientTooLarge(Exception):
    """A client that says more of itself than each request can carry."""


def client_meta(initialize: object) -> dict[str, Any]:
    """The members of ``_meta`` that stand for the params of an ``initialize``. Raises ClientTooLarge."""
    params = initialize if isinstance(initialize, dict) else {}
    capabilities = params.get("capabilities")
    capabilities = dict(capabilities) if isinstance(capabilities, dict) else {}
    for name in _NOT_CARRIED:
        capabilities.pop(name, None)
    meta = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: capabilities}
    if isinstance(info := params.get("clientInfo"), dict):
        meta[INFO_KEY] = info
    if len(dump(meta)) > LONGEST_META:
        raise ClientTooLarge(
            f"The clientInfo and capabilities of initialize may have at most {LONGEST_META} bytes together."
        )
    return meta


def modern_request(envelope: Envelope, meta: Mapping[str, Any], members: bytes) -> bytes:
    """The request with ``meta`` added to its ``_meta``; ``members`` is the same as JSON, without its braces."""
    body = envelope.body
    if PREFIX.encode() in body or b"\\" in body:
        # It may have some of these members already, or spell others in a way that takes reading.
        return edit(body, [Insert(("params", "_meta", key), dump(value)) for key, value in meta.items()])
    if envelope.trace is not NO_META and body.count(b'"_meta"') == 1 and (key := body.find(_META)) >= 0:
        # Without escapes, a key that is there once is that of the params, which have it.
        return _prepended(body, key + len(_META) - 1, members)
    start = _params_of(body)
    if start is None:
        span = find(body, ("params",))
        if span is None:
            return edit(body, [Insert(("params", "_meta"), b"{" + members + b"}")])
        start = span[0]
    if b'"_meta"' in body and (found := find(body, ("params", "_meta"))) is not None:
        return _prepended(body, found[0], members)
    return _prepended(body, start, b'"_meta":{' + members + b"}")


def _params_of(body: bytes) -> int | None:
    """The beginning of the params of a request without escapes; None where only a walk could tell, which takes as long
    as all else that is done to one.
    """
    place = body.find(_PARAMS)
    # The only key of this name, with no brace in between: it can be a member of the request only.
    if place < 0 or body.count(b'"params"') > 1:
        return None
    if body.find(b"{", 1, place) >= 0 or body.find(b"}", 1, place) >= 0:
        return None
    return place + len(_PARAMS) - 1


def _prepended(body: bytes, start: int, members: bytes) -> bytes:
    """The text with members at the beginning of the object that begins at ``start``; as it is where that is none."""
    if body[start] != ord("{"):
        return body
    comma = b"" if body[start + 1 :].lstrip()[:1] == b"}" else b","
    return body[: start + 1] + members + comma + body[start + 1 :]


def next_round(
    body: bytes, number: bytes, responses: Mapping[str, bytes] | None, state: bytes | None
) -> bytes:
    """A request of a call's next round: under another id, with the client's answers and the server's state."""
    edits: list[Edit] = [Replace(("id",), number)]
    if responses is not None:
        given = b",".join(dump(key) + b":" + value for key, value in responses.items())
        edits.append(Insert(("params", "inputResponses"), b"{" + given + b"}"))
    if state is not None:
        edits.append(Insert(("params", "requestState"), state))
    return edit(body, edits)


def own_request(number: bytes, method: str, members: bytes, params: bytes = b"") -> bytes:
    """A request that a client of the other era has none like. ``params`` are members of that, each with a comma."""
    return b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":{%b"_meta":{%b}}}' % (
        number,
        method.encode(),
        params,
        members,
    )


def subscription(uris: Iterable[str]) -> bytes:
    """The params of ``subscriptions/listen`` for all that a legacy client hears on its GET stream."""
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": [*uris],
    }
    return b'"notifications":' + dump(wanted) + b","


def mirrored_name(envelope: Envelope) -> str | None:
    """The value of the header Mcp-Name; None for a request that has none."""
    if envelope.method not in _NAMED or envelope.name is None:
        return None
    return encode_mirror(envelope.name)


SHORT = 64 << 10
"""Bytes of a response that is parsed to be translated: that costs less than a walk through it."""

MODERN_ONLY = ("resultType", "ttlMs", "cacheScope")
"""Members of results that legacy ones have not."""

TASKS = "io.modelcontextprotocol/tasks"

# A key: an unescaped quotation mark behind one of these can only begin a string.
_MEMBERS = {
    name: re.compile(
        rb'([{,])[ \t\r\n]*"%b"[ \t\r\n]*:[ \t\r\n]*(?:"[a-z_]*"|[0-9]+)[ \t\r\n]*(?:(,)|(?=}))'
        % name.encode()
    )
    for name in MODERN_ONLY
}


def legacy_response(response: bytes, method: str) -> bytes:
    """The response to a request of that method without what only modern results have. Raises BadJson."""
    if b'"error"' in response and method == "resources/read":
        return _with_legacy_code(response)
    if len(response) > SHORT or b"\\u" in response:
        # An escape may hide a name; a walk through all of it sees that.
        return (
            edit(response, [Drop(("result", name)) for name in MODERN_ONLY])
            if _has_any(response)
            else response
        )
    result = None
    for name in MODERN_ONLY:
        key = b'"%b"' % name.encode()
        if key not in response:
            continue
        if result is None:
            message = parse(response)
            result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict) and name in result:
            shorter = _MEMBERS[name].sub(_left_of, response) if response.count(key) == 1 else response
            response = edit(response, [Drop(("result", name))]) if shorter is response else shorter
    return response


def _has_any(response: bytes) -> bool:
    return b"\\u" in response or any(name.encode() in response for name in MODERN_ONLY)


def _left_of(member: re.Match[bytes]) -> bytes:
    """The sign before a member that is taken away with the comma behind it, or with the one before it."""
    if member[2]:
        return member[1]
    return b"{" if member[1] == b"{" else b""


def _with_legacy_code(response: bytes) -> bytes:
    message = parse(response)
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict) or error.get("code") != INVALID_PARAMS:
        return legacy_response(response, "") if error is None else response
    return edit(response, [Replace(("error", "code"), b"%d" % RESOURCE_NOT_FOUND)])


def legacy_notification(data: bytes) -> bytes:
    """A notification of a subscription without the id of that."""
    path = ("params", "_meta", SUBSCRIPTION_KEY)
    if SUBSCRIPTION_KEY.encode() not in data or find(data, path) is None:
        return data
    return edit(data, [Drop(path)])


def agreed_version(params: object) -> str:
    """The version of MCP that is agreed with a client which sends ``initialize`` with these params."""
    wanted = params.get("protocolVersion") if isinstance(params, dict) else None
    return wanted if wanted in LEGACY_VERSIONS else LEGACY_VERSIONS[-1]


def initialize_response(discovered: bytes, id_bytes: bytes, version: str) -> bytes:
    """The response to ``initialize`` that says what a response to ``server/discover`` does. Raises BadJson where that
    has no result.
    """
    message = parse(discovered)
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict):
        raise BadJson("The answer to server/discover has no result.")
    meta, capabilities = result.get("_meta"), result.get("capabilities")
    info = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else result.get("serverInfo")
    told: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": _capabilities(capabilities if isinstance(capabilities, dict) else {}),
        # Members that a legacy client needs, of a server that does not name itself.
        "serverInfo": {"name": "unknown", "version": "0", **(info if isinstance(info, dict) else {})},
    }
    if isinstance(instructions := result.get("instructions"), str):
        told["instructions"] = instructions
    return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":' + dump(told) + b"}"


def _capabilities(modern: dict[str, Any]) -> dict[str, Any]:
    extensions = modern.get("extensions")
    if not isinstance(extensions, dict) or TASKS not in extensions:
        return modern
    return {**modern, "extensions": {name: value for name, value in extensions.items() if name != TASKS}}


ELICIT = "elicitation/create"
METHODS = frozenset((ELICIT, "sampling/createMessage", "roots/list"))
MODES_SINCE = "2025-11-25"
"""The version that has modes of elicitation. Clients of earlier ones know forms, without the member that says so."""

MOST_QUESTIONS = 64
"""Questions of one round."""

LARGEST = 1 << 20
"""Bytes of a result that asks for input, which is read whole."""

DECLINED = b'{"action":"decline"}'


class Question(NamedTuple):
    """One request to a client by the ``key`` that the server gave it. ``params`` as JSON, None without any."""

    key: str
    method: str
    params: bytes | None


class InputRound(NamedTuple):
    """The questions of one round, None where the server has none, and its state as JSON."""

    questions: list[Question] | None
    state: bytes | None


def input_round(response: bytes) -> InputRound | None:
    """The round that a response asks for; None for any other response. Raises UpstreamBroken for one that asks for
    what no client has, or for too much.
    """
    if b"input_required" not in response and b"\\" not in response:
        return None
    kind = find(response, ("result", "resultType"))
    if kind is None or parse(response[slice(*kind)]) != "input_required":
        return None
    if len(response) > LARGEST:
        raise UpstreamBroken(f"The upstream server asked for input in more than {LARGEST} bytes.")
    state = find(response, ("result", "requestState"))
    asked = find(response, ("result", "inputRequests"))
    if state is None and asked is None:
        raise UpstreamBroken("The upstream server asked for input without a question or a state.")
    questions = None if asked is None else _questions(response[slice(*asked)])
    return InputRound(questions, None if state is None else response[slice(*state)])


def _questions(asked: bytes) -> list[Question]:
    found: dict[str, Question] = {}
    if not asked.startswith(b"{"):
        raise UpstreamBroken("The upstream server's inputRequests are no object.")
    for member in members(asked):
        text = asked[member.value_start : member.value_end]
        request = parse(text)
        method = request.get("method") if isinstance(request, dict) else None
        if method not in METHODS:
            raise UpstreamBroken("The upstream server asked for input that MCP has no request for.")
        params = find(text, ("params",)) if isinstance(request.get("params"), dict) else None
        found[member.key] = Question(member.key, method, None if params is None else text[slice(*params)])
        if len(found) > MOST_QUESTIONS:
            raise UpstreamBroken(f"The upstream server asked more than {MOST_QUESTIONS} questions at once.")
    return [*found.values()]


def request_of(question: Question, number: str, version: str) -> bytes:
    """The question as a request to a client of that version."""
    params = question.params
    if question.method == ELICIT and params is not None:
        edits: list[Edit] = []
        mode = find(params, ("mode",))
        if mode is not None and parse(params[slice(*mode)]) == "url":
            # Gone since 2026-07-28; a client of 2025-11-25 needs one.
            edits.append(Insert(("elicitationId",), dump(number)))
        elif version < MODES_SINCE:
            edits.append(Drop(("mode",)))
        params = edit(params, edits) if edits else params
    members_ = b"" if params is None else b',"params":' + params
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b}' % (dump(number), dump(question.method), members_)


class NotAnswered(Exception):
    """A client's error in the place of an answer; ``error`` as JSON."""

    def __init__(self, error: bytes) -> None:
        super().__init__("The client answered with an error.")
        self.error = error


def answer_to(question: Question, response: bytes) -> bytes:
    """The client's answer as the server gets it. Raises NotAnswered for an error of the client, but for a form that it
    does not show: that is declined.
    """
    result = find(response, ("result",))
    if result is not None and response.startswith(b"{", result[0]):
        return response[slice(*result)]
    if question.method == ELICIT:
        return DECLINED
    error = find(response, ("error",))
    if error is None:
        raise BadJson("The client's answer has neither a result nor an error.")
    raise NotAnswered(response[slice(*error)])
