"""A modern server's answers and notifications as a legacy client reads them. What is not about the era keeps its bytes.

Source of the rules: MCP 2026-07-28, "Key Changes", and the schemas of both revisions.
"""

from __future__ import annotations

import re
from typing import Any

from adapter.errors import BadJson
from adapter.rules.eras.modern_results import SERVER_INFO_KEY
from adapter.wire.envelope import INVALID_PARAMS, RESOURCE_NOT_FOUND, dump, parse
from adapter.wire.eras import LEGACY_VERSIONS
from adapter.wire.names import SUBSCRIPTION_KEY
from adapter.wire.spans import Drop, Replace, edit, find

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
