"""Header fields of an upstream's answer that reach a client: all but those of the connection and those that act on a
browser or on the adapter's own address (RELAY §1).

Names are compared in lower case and leave as they were spelled; order and repeated fields are kept. A field whose
value holds CR, LF or NUL is dropped, as in requests.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

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


class SharedFields(list[Field]):
    """The fields of a head that many messages have, but for the number in Content-Length: nothing changes them.

    ``derived`` is for what follows from the others alone, so that it is found out once. Whoever keeps something there
    has one key for it, or few. ``base`` are all fields but the last, where those are shared by even more messages: what
    follows from them need not be found out again for each last one.
    """

    __slots__ = ("_length", "base", "derived")

    def __init__(
        self, fields: Iterable[Field], length: int | None = None, base: SharedFields | None = None
    ) -> None:
        super().__init__(fields)
        self.derived: dict[object, Any] = {}
        self.base = base
        self._length = length

    def followed_by(self, field: Field) -> SharedFields:
        """These fields and another one behind them."""
        return SharedFields((*self, field), base=self)

    def with_length(self, length: int) -> SharedFields:
        """The fields with this number in Content-Length, if they have that field."""
        if length == self._length:
            return self
        number = str(length)
        other = SharedFields(
            [(name, number if name.lower() == "content-length" else value) for name, value in self], length
        )
        other.derived = self.derived
        return other


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


LONGEST_ACCEPT = 1024
"""Characters of an Accept field that are read."""


def prefers(accept: str, wanted: str, other: str) -> bool:
    """Tell whether an Accept field names the media type or coding ``wanted``, with no less weight than ``other``.

    Both are compared as they are: ``*/*`` names neither.
    """
    best = {wanted: 0.0, other: 0.0}
    for entry in accept[:LONGEST_ACCEPT].split(","):
        kind, *parameters = (part.strip().lower() for part in entry.split(";"))
        if kind in best:
            best[kind] = max(best[kind], _weight(parameters))
    return best[wanted] > 0 and best[wanted] >= best[other]


def _weight(parameters: list[str]) -> float:
    """The weight among the parameters of a media range (RFC 9110, 12.5.1); 1 without one, 0 for one that is none."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            digits = value.strip().replace(".", "", 1)
            return float(value) if digits.isascii() and digits.isdigit() else 0.0
    return 1.0


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


KNOWN_AT_MOST = 64
KNOWN_SIZE = 4096
"""Heads whose passing fields one server's AnswerHeaders remembers, and the characters of each."""


class HeldBack(NamedTuple):
    """Fields of an answer that stay here unless ``server_headers.passthrough`` names them.

    A name, in lower case, that ends in ``*`` stands for all that begin so. ``docs/headers.md`` shows this list.
    """

    reason: str
    names: tuple[str, ...]


HELD_BACK = (
    HeldBack(
        "They change browser data for the adapter's address, which all servers share.",
        (
            "activate-storage-access",
            "clear-site-data",
            "set-cookie",
            "set-cookie2",
            "set-login",
            "use-as-dictionary",
        ),
    ),
    HeldBack(
        "They control which pages may read, embed or measure the adapter's answers; `core.cors` does that.",
        (
            "access-control-*",
            "cross-origin-*",
            "origin-agent-cluster",
            "timing-allow-origin",
            "x-permitted-cross-domain-policies",
        ),
    ),
    HeldBack(
        "They set or relax policies of a page; the adapter sets its own.",
        (
            "content-security-policy",
            "content-security-policy-report-only",
            "document-isolation-policy*",
            "document-policy*",
            "feature-policy",
            "integrity-policy*",
            "permissions-policy*",
            "referrer-policy",
            "require-document-policy",
            "speculation-rules",
            "supports-loading-mode",
            "x-content-security-policy*",
            "x-download-options",
            "x-frame-options",
            "x-ua-compatible",
            "x-webkit-csp*",
            "x-xss-protection",
        ),
    ),
    HeldBack(
        "They bind a browser to a transport or another address for all later requests to the adapter.",
        ("alt-svc", "expect-ct", "public-key-pins*", "strict-transport-security"),
    ),
    HeldBack(
        "They start or extend a browser feature that lasts longer than the answer.",
        (
            "accept-ch*",
            "critical-ch",
            "sec-*",
            "secure-session-*",
            "service-worker*",
            "x-dns-prefetch-control",
        ),
    ),
    HeldBack(
        "They send a client to another address, with its session id and its token, or make a browser load something.",
        ("link", "location", "refresh", "sourcemap", "x-sourcemap"),
    ),
    HeldBack(
        "They make a browser send reports or measurements about the adapter's address.",
        (
            "attribution-reporting-*",
            "nel",
            "observe-browsing-topics",
            "report-to",
            "reporting-endpoints",
            "server-timing",
        ),
    ),
    HeldBack(
        "They are commands for a proxy in front of the adapter, for example to send a file of its machine.",
        (
            "surrogate-control",
            "x-accel-charset",
            "x-accel-expires",
            "x-accel-limit-rate",
            "x-accel-redirect",
            "x-litespeed-*",
            "x-lighttpd-*",
            "x-reproxy-*",
            "x-sendfile*",
        ),
    ),
)
"""The list, with the reason for each group."""

OWN = frozenset({"mcp-session-id", "x-content-type-options"})
"""Fields that the adapter itself writes in the answers of a mount; an upstream's never pass."""

_ALL_HELD_BACK = tuple(name for group in HELD_BACK for name in group.names)
_HELD_BACK = frozenset(name for name in _ALL_HELD_BACK if not name.endswith("*"))
_HELD_BACK_BEGIN = tuple(name[:-1] for name in _ALL_HELD_BACK if name.endswith("*"))

# What describes the very bytes of a body; of one that was changed it would be wrong.
_OF_BYTES = frozenset(
    {
        "accept-ranges",
        "content-digest",
        "content-encoding",
        "content-md5",
        "digest",
        "etag",
        "repr-digest",
        "signature",
        "signature-input",
        "unencoded-digest",
    }
)


class AnswerHeaders:
    """Selects the fields of one server's answers that reach its clients; see HELD_BACK.

    ``drop`` and ``passthrough`` are ``server_headers``: further names that stay here, and names of the list that pass.
    A name in both stays here. Neither makes a field of the connection pass, nor one of OWN.
    """

    __slots__ = ("_drop", "_known", "_passthrough")

    def __init__(self, *, drop: Iterable[str] = (), passthrough: Iterable[str] = ()) -> None:
        self._drop = NEVER | OWN | {name.lower() for name in drop}
        self._passthrough = frozenset(name.lower() for name in passthrough)
        self._known: dict[tuple[Field, ...], SharedFields] = {}

    def to_client(self, headers: Iterable[Field]) -> list[Field]:
        """Return the fields that pass, in their order: a new list, or for SharedFields others of them."""
        if type(headers) is not SharedFields:
            return [*self.shared(headers)]
        passed: SharedFields | None = headers.derived.get(self)
        if passed is None:
            passed = headers.derived[self] = self.shared(headers)
        return passed

    def shared(self, headers: Iterable[Field]) -> SharedFields:
        """Return the same fields, as many answers have them."""
        # Heads of one server are mostly alike, so they are remembered.
        came = tuple(headers)
        return self._known.get(came) or self._apart_from_session(came)

    def _apart_from_session(self, came: tuple[Field, ...]) -> SharedFields:
        # Answers that open sessions are alike but for an id, which stays here.
        came = tuple([field for field in came if field[0].lower() != "mcp-session-id"])
        passed = self._known.get(came)
        if passed is None:
            passed = SharedFields(self._passing(came))
            if sum(len(name) + len(value) for name, value in came) <= KNOWN_SIZE:
                if len(self._known) >= KNOWN_AT_MOST:
                    self._known.clear()
                self._known[came] = passed
        return passed

    def _passing(self, headers: Sequence[Field]) -> list[Field]:
        named: set[str] = set()
        for name, value in headers:
            if name.lower() == "connection":
                named |= named_by(value)
        stays = self._drop | named
        return [field for field in headers if self._passes(field, stays)]

    def _passes(self, field: Field, stays: Collection[str]) -> bool:
        name = field[0].lower()
        if name in stays or splits(field[1]) or TOKEN.fullmatch(name) is None:
            return False
        return name in self._passthrough or not (name in _HELD_BACK or name.startswith(_HELD_BACK_BEGIN))


def of_changed_body(headers: Iterable[Field]) -> list[Field]:
    """Return the fields of an answer whose body was decoded or changed: without coding, digests and validators."""
    return [field for field in headers if field[0].lower() not in _OF_BYTES]
