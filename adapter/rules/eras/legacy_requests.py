"""Requests of modern clients (MCP 2026-07-28) as a legacy server (up to 2025-11-25) reads them. Pure.

Source of the rules: MCP 2026-07-28, "_meta" and "Streamable HTTP"; the schemas of both revisions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

from adapter.rules.access.headers import Field, SharedFields
from adapter.wire.envelope import dump
from adapter.wire.names import VERSION_KEY
from adapter.wire.spans import Drop, Replace, edit

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
