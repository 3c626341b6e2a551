"""Header fields of a request that reach an upstream: an allow-list, so that what nobody thought of stays behind.

Names are compared in lower case and leave as they were spelled; order and repeated fields are kept. A field whose
value holds CR, LF or NUL is dropped: HTTP parsers refuse those already, and here is the last place that could let one
split a message (RFC 9110 §5.5).
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
# Host and framing belong to each connection (RFC 9110 §7.6.1); the session id is mapped by whoever sends.
NEVER = frozenset(
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
"""Fields that cross neither way, whatever the settings list."""

_UNREMARKABLE_OPTIONS = frozenset({"keep-alive", "close"})
_SPLITTING = re.compile(r"[\r\n\x00]")
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

Field = tuple[str, str]
"""Name and value."""


_ONCE = frozenset(
    {"authorization", "content-encoding", "content-type", "last-event-id", "origin", "sec-fetch-mode"}
)


def to_upstream(
    headers: Iterable[Field],
    *,
    passthrough: frozenset[str],
    static: Sequence[Field],
    withhold: frozenset[str],
) -> list[Field]:
    """The fields of a client's request that its upstream gets, then the configured ``static`` ones.

    ``passthrough`` (lower case) adds to the allow-list. ``withhold`` (lower case) names what carried the
    adapter's own credential: it stays here even if listed. A static field replaces the client's of the same
    name; being the operator's own, it is not withheld. Host, framing, hop-by-hop fields and Mcp-Session-Id
    never pass.
    """
    replaced = {name.lower() for name, _ in static} if static else withhold
    named: set[str] = set()
    passed: list[Field] = []
    for field in headers:
        name = field[0].lower()
        if name in _TO_UPSTREAM:
            pass
        elif name in passthrough:
            if name in NEVER:
                continue
        elif name == "connection":
            named |= named_by(field[1])
            continue
        elif not name.startswith("mcp-param-") or TOKEN.fullmatch(name) is None:
            continue
        if name in withhold or name in replaced or splits(field[1]):
            continue
        passed.append(field)
    if named:
        passed = [field for field in passed if field[0].lower() not in named]
    if static:
        passed += [field for field in static if field[0].lower() not in NEVER and not splits(field[1])]
    return passed


def ambiguous(repeated: Iterable[str], token_header: str) -> str | None:
    """Return the first of the ``repeated`` names (lower case) that decides something and so may be there only once.

    ``token_header`` is the name, in lower case, of the header that carries the adapter's own token.
    """
    deciding = (name for name in repeated if name in _ONCE or name.startswith("mcp-") or name == token_header)
    return min(deciding, default=None)


def missing(required: Sequence[str], headers: Iterable[Field]) -> str | None:
    """The first of ``required``, as it is spelled there, that is absent or blank; None if all are present."""
    if not required:
        return None
    present = {name.lower() for name, value in headers if value.strip()}
    return next((name for name in required if name.lower() not in present), None)


def named_by(connection: str) -> set[str]:
    """The fields that a Connection field declares to be of this hop only."""
    return {option.strip().lower() for option in connection.split(",")} - _UNREMARKABLE_OPTIONS


def splits(value: str) -> bool:
    # isprintable is quick and true of nearly every value; tabs and non-ASCII text take the second look.
    return not value.isprintable() and _SPLITTING.search(value) is not None
