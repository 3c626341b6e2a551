"""Messages between a modern client (MCP 2026-07-28) and a legacy server (up to 2025-11-25), as the other side reads
them: requests, and the answers to them. Pure.

Source of the rules: MCP 2026-07-28, "_meta", "Streamable HTTP", "Discovery" and "Caching"; the schemas of both
revisions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from adapter.errors import UpstreamBroken
from adapter.rules.access.headers import Field, SharedFields
from adapter.wire.envelope import INVALID_PARAMS, RESOURCE_NOT_FOUND, dump
from adapter.wire.eras import MODERN_VERSIONS
from adapter.wire.names import SUBSCRIPTION_KEY, VERSION_KEY
from adapter.wire.spans import Drop, Insert, Replace, edit, find

CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"

MODERN_META = frozenset(
    {VERSION_KEY, CAPABILITIES_KEY, LEVEL_KEY, "io.modelcontextprotocol/clientInfo"},
)
"""What each modern request says in ``params._meta``, and no legacy one."""

NOT_MODERN = frozenset(
    {
        "initialize",
        "logging/setLevel",
        "ping",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
    }
)
"""Requests of the legacy era that a modern server does not know."""

_ROUNDS = frozenset({"inputResponses", "requestState"})
_PLAIN_META = frozenset({"progressToken"})
_META = b'"_meta"'
_PART = rb'[^{}"\\]++|"[^"\\]*+"'
# Before 3.11.5 Python reads a possessive repetition right only with (?!) at its end (CPython issue 106052).
_FLAT = rb"\{(?:%b|(?!))*+\}" % _PART
_SECOND = rb"\{(?:%b|%b|(?!))*+\}" % (_PART, _FLAT)
_THIRD = rb"\{(?:%b|%b|(?!))*+\}" % (_PART, _SECOND)
# Of four levels, without escapes: what SDKs write.
_USUAL_META = re.compile(rb'"_meta": ?(\{(?:%b|%b|(?!))*+\})' % (_PART, _THIRD))
_MIRRORS = ("mcp-method", "mcp-name", "mcp-session-id", "mcp-param-")

Level = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The severities of log messages, the most detailed first."""


def severity(level: object) -> int | None:
    """The place of a level among all; None for what is none."""
    return LEVELS.index(level) if isinstance(level, str) and level in LEVELS else None


def legacy_request(body: bytes, params: Mapping[str, Any]) -> bytes:
    """A modern request without what only modern ones have. ``params`` is the decoded member of it."""
    meta = params.get("_meta")
    drops: list[Drop] = []
    if isinstance(meta, dict):
        rest = meta.keys() - MODERN_META
        if rest <= _PLAIN_META and not _ROUNDS & params.keys():
            return _with_meta(body, _only_token(meta))
        own = [key for key in meta if key in MODERN_META]
        drops = (
            [Drop(("params", "_meta"))]
            if len(own) == len(meta)
            else [Drop(("params", "_meta", key)) for key in own]
        )
    drops += [Drop(("params", name)) for name in _ROUNDS if name in params]
    return edit(body, drops) if drops else body


def _only_token(meta: Mapping[str, Any]) -> bytes:
    token = meta.get("progressToken", meta)
    if token is meta:
        return b"{}"
    return b'{"progressToken":%d}' % token if type(token) is int else dump({"progressToken": token})


def _with_meta(body: bytes, text: bytes) -> bytes:
    # Without escapes, a key that is there once is that of the params: no walk is needed.
    usual = _USUAL_META.search(body) if b"\\" not in body and body.count(_META) == 1 else None
    if usual is None:
        return edit(body, [Replace(("params", "_meta"), text)])
    return body[: usual.start(1)] + text + body[usual.end(1) :]


def legacy_fields(headers: Sequence[Field]) -> SharedFields:
    """The fields of a modern request without those that mirror its message, or name a session. Shared ones give the
    same each time.
    """
    derived = headers.derived if type(headers) is SharedFields else {}
    found: SharedFields | None = derived.get(legacy_fields)
    if found is None:
        fields = [field for field in headers if not field[0].lower().startswith(_MIRRORS)]
        found = derived[legacy_fields] = SharedFields(fields)
    return found


def cancellation(id_bytes: bytes) -> bytes:
    """The notification that nobody waits for the answer to a request."""
    params = b'{"requestId":%b,"reason":"The client has gone."}' % id_bytes
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params


SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"

CACHEABLE = frozenset(
    {
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Requests whose results say how long, and by whom, they may be kept."""

CAPABILITIES = ("completions", "experimental", "extensions", "logging", "prompts", "resources", "tools")
"""What a modern server may declare of what a legacy one does. Tasks are others in each era."""

# As SDKs write them. The rest may be anything that needs no look.
_USUAL = re.compile(
    rb'\{(?:"jsonrpc": ?"2\.0", ?"id": ?(?:-?[0-9]{1,15}|"[^"\\]{0,99}"), ?)?"result": ?\{(?=")'
)
_UNUSUAL = re.compile(rb"_meta|resultType|ttlMs|cacheScope|\\u")


def modern_response(response: bytes, method: str, server_info: bytes | None, id_bytes: bytes | None) -> bytes:
    """The response to a request of ``method``, with what each result of the modern era has.

    ``server_info`` is JSON, ``id_bytes`` another id than the one it came with. Nobody but the client may keep it.
    Raises UpstreamBroken for a result that is no object.
    """
    usual = _USUAL.match(response) if id_bytes is None else None
    if usual is not None and _UNUSUAL.search(response) is None:
        end = usual.end()
        return response[:end] + _new_members(method, server_info) + b"," + response[end:]
    edits: list[Insert | Replace] = []
    if id_bytes is not None:
        edits.append(Replace(("id",), id_bytes))
    if find(response, ("result",)) is not None:
        edits.append(Insert(("result", "resultType"), b'"complete"'))
        if method in CACHEABLE:
            edits.append(Insert(("result", "ttlMs"), b"0"))
            edits.append(Insert(("result", "cacheScope"), b'"private"'))
        if server_info is not None:
            edits.append(Insert(("result", "_meta", SERVER_INFO_KEY), server_info))
    elif method == "resources/read" and error_code(response) == RESOURCE_NOT_FOUND:
        edits.append(Replace(("error", "code"), b"%d" % INVALID_PARAMS))
    try:
        return edit(response, edits) if edits else response
    except ValueError:
        raise UpstreamBroken("The upstream server answered with a result that is no object.") from None


@lru_cache(256)
def _new_members(method: str, server_info: bytes | None) -> bytes:
    kept = b',"ttlMs":0,"cacheScope":"private"' if method in CACHEABLE else b""
    meta = (
        b"" if server_info is None else b',"_meta":{"' + SERVER_INFO_KEY.encode() + b'":' + server_info + b"}"
    )
    return b'"resultType":"complete"' + kept + meta


def error_code(response: bytes) -> int | None:
    """The code of a response that carries an error; None for any other."""
    if b'"error"' not in response and b"\\" not in response:
        return None
    span = find(response, ("error", "code"))
    text = b"" if span is None else response[slice(*span)]
    return int(text) if 0 < len(text) < 10 and text.lstrip(b"-").isdigit() else None


def discovered(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of ``server/discover`` that says what this result of ``initialize`` says."""
    declared = result.get("capabilities")
    known = declared if isinstance(declared, dict) else {}
    value: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(MODERN_VERSIONS),
        "capabilities": {name: known[name] for name in CAPABILITIES if isinstance(known.get(name), dict)},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    if isinstance(result.get("instructions"), str):
        value["instructions"] = result["instructions"]
    if isinstance(result.get("serverInfo"), dict):
        value["_meta"] = {SERVER_INFO_KEY: result["serverInfo"]}
    return value


# --- subscriptions --------------------------------------------------------------------------------------------

_LISTS = {
    "toolsListChanged": ("tools", "notifications/tools/list_changed"),
    "promptsListChanged": ("prompts", "notifications/prompts/list_changed"),
    "resourcesListChanged": ("resources", "notifications/resources/list_changed"),
}

UPDATED: Final = "notifications/resources/updated"
SUBSCRIBED = frozenset({UPDATED, *(method for _, method in _LISTS.values())})
"""Notifications that reach a modern client only where it has subscribed to them."""

MOST_URIS = 1000
"""Resources of which one subscription is told."""


def agreed(asked: Mapping[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """What a server with these capabilities will tell of all that was ``asked``. Raises ValueError for what is none."""
    found: dict[str, Any] = {}
    for name, (feature, _) in _LISTS.items():
        declared = capabilities.get(feature)
        if asked.get(name) is True and isinstance(declared, dict) and declared.get("listChanged") is True:
            found[name] = True
    uris, resources = uris_in(asked), capabilities.get("resources")
    if uris and isinstance(resources, dict) and resources.get("subscribe") is True:
        found["resourceSubscriptions"] = uris
    return found


def uris_in(asked: Mapping[str, Any]) -> list[str]:
    """The resources of which a subscription is to tell. Raises ValueError for what is no list of them, or too much."""
    uris = asked.get("resourceSubscriptions")
    if uris is None:
        return []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris) or len(uris) > MOST_URIS:
        raise ValueError(f"resourceSubscriptions must be a list of at most {MOST_URIS} URIs.")
    return list(dict.fromkeys(uris))


def wanted_methods(filter_: Mapping[str, Any]) -> frozenset[str]:
    """The notifications that a filter lets pass."""
    lists = {method for name, (_, method) in _LISTS.items() if name in filter_}
    return frozenset(lists | ({UPDATED} if "resourceSubscriptions" in filter_ else set()))


def of_subscription(notification: bytes, id_bytes: bytes) -> bytes:
    """A notification as the subscription with this id is told of it. Raises ValueError for odd params."""
    return edit(notification, [Insert(("params", "_meta", SUBSCRIPTION_KEY), id_bytes)])


def subscription_message(id_bytes: bytes, filter_: Mapping[str, Any] | None) -> bytes:
    """The notification that acknowledges a subscription with its filter; the response that ends it, without one."""
    meta = b'"_meta":{"' + SUBSCRIPTION_KEY.encode() + b'":' + id_bytes + b"}"
    if filter_ is None:
        return b'{"jsonrpc":"2.0","id":' + id_bytes + b',"result":{"resultType":"complete",' + meta + b"}}"
    method = b'"method":"notifications/subscriptions/acknowledged"'
    return (
        b'{"jsonrpc":"2.0",' + method + b',"params":{"notifications":' + dump(filter_) + b"," + meta + b"}}"
    )
