"""Which header fields cross the adapter, each way: allow-lists, so that what nobody thought of stays behind.

Both functions run once per call. Names are compared in lower case and leave as they were spelled; order and
repeated fields are kept. A field whose value holds CR, LF or NUL is dropped: HTTP parsers refuse those
already, and here is the last place that could let one split a request (RFC 9110 §5.5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_TO_UPSTREAM = frozenset(
    {
        "accept",
        "accept-encoding",
        "baggage",
        "content-encoding",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "traceparent",
        "tracestate",
    }
)
_TO_CLIENT = frozenset(
    {
        "allow",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "etag",
        "last-modified",
        "retry-after",
        "traceresponse",
        "vary",
        "www-authenticate",
        "x-accel-buffering",
        "x-request-id",
    }
)
# Host and framing belong to each connection (RFC 9110 §7.6.1); the session id is mapped by whoever sends.
_NEVER = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "mcp-session-id",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_UNREMARKABLE_OPTIONS = frozenset({"keep-alive", "close"})
_SPLITTING = re.compile(r"[\r\n\x00]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def to_upstream(
    headers: Iterable[tuple[str, str]],
    *,
    passthrough: frozenset[str],
    static: Sequence[tuple[str, str]],
    withhold: frozenset[str],
) -> list[tuple[str, str]]:
    """The fields of a client's request that its upstream gets, then the configured ``static`` ones.

    ``passthrough`` (lower case) adds to the allow-list. ``withhold`` (lower case) names what carried the
    adapter's own credential: it stays here even if listed. A static field replaces the client's of the same
    name; being the operator's own, it is not withheld. Host, framing, hop-by-hop fields and Mcp-Session-Id
    never pass.
    """
    replaced = {name.lower() for name, _ in static} if static else withhold
    named: set[str] = set()
    passed: list[tuple[str, str]] = []
    for field in headers:
        name = field[0].lower()
        if name in _TO_UPSTREAM:
            pass
        elif name in passthrough:
            if name in _NEVER:
                continue
        elif name == "connection":
            named |= _named_by(field[1])
            continue
        elif not name.startswith("mcp-param-") or _TOKEN.fullmatch(name) is None:
            continue
        if name in withhold or name in replaced or _splits(field[1]):
            continue
        passed.append(field)
    if named:
        passed = [field for field in passed if field[0].lower() not in named]
    if static:
        passed += [field for field in static if field[0].lower() not in _NEVER and not _splits(field[1])]
    return passed


def to_client(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields of an upstream's answer that its client gets; no cookie, no redirect, no Mcp-Session-Id."""
    named: set[str] = set()
    passed: list[tuple[str, str]] = []
    for field in headers:
        name = field[0].lower()
        if name not in _TO_CLIENT:
            if name == "connection":
                named |= _named_by(field[1])
                continue
            if not name.startswith("mcp-") or name in _NEVER or _TOKEN.fullmatch(name) is None:
                continue
        if not _splits(field[1]):
            passed.append(field)
    if named:
        passed = [field for field in passed if field[0].lower() not in named]
    return passed


def missing(required: Sequence[str], headers: Iterable[tuple[str, str]]) -> str | None:
    """The first of ``required``, as it is spelled there, that is absent or blank; None if all are present."""
    if not required:
        return None
    present = {name.lower() for name, value in headers if value.strip()}
    return next((name for name in required if name.lower() not in present), None)


def _named_by(connection: str) -> set[str]:
    """The fields that a Connection field declares to be of this hop only."""
    return {option.strip().lower() for option in connection.split(",")} - _UNREMARKABLE_OPTIONS


def _splits(value: str) -> bool:
    # isprintable is quick and true of nearly every value; tabs and non-ASCII text take the second look.
    return not value.isprintable() and _SPLITTING.search(value) is not None
