"""A legacy client's requests as a modern server reads them: with what MCP 2026-07-28 has in each request's ``_meta``.

Everything that is not about the era keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adapter.rules.eras.legacy_requests import CAPABILITIES_KEY
from adapter.wire.envelope import Envelope, dump
from adapter.wire.eras import MODERN_VERSIONS, encode_mirror
from adapter.wire.names import VERSION_KEY
from adapter.wire.spans import Edit, Insert, Replace, edit, find
from adapter.wire.trace_context import NO_META

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
