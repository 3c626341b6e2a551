"""Header fields of an upstream's answer that reach a client: all but those of the connection and those that act on a
browser or on the adapter's own address (RELAY §1).

Names are compared in lower case and leave as they were spelled; order and repeated fields are kept. A field whose
value holds CR, LF or NUL is dropped, as in requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from adapter.rules.access.request_headers import NEVER, TOKEN, Field, named_by, splits

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
        "They change what a browser keeps for the adapter's address, which all servers behind it share.",
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
        "They say which pages may read, embed or measure the adapter's answers: that is for `core.cors` to say.",
        (
            "access-control-*",
            "cross-origin-*",
            "origin-agent-cluster",
            "timing-allow-origin",
            "x-permitted-cross-domain-policies",
        ),
    ),
    HeldBack(
        "They are policies for a page, or loosen one; the adapter writes its own.",
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
        "They start or widen something in a browser that lives longer than the answer.",
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
        "They send a client elsewhere, with its session id and its token, or make a browser load something.",
        ("link", "location", "refresh", "sourcemap", "x-sourcemap"),
    ),
    HeldBack(
        "They make a browser report to others on the adapter's behalf, or feed its measurements.",
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
        "They are orders to a proxy in front of the adapter, such as to send a file of its own machine.",
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
        self._known: dict[tuple[Field, ...], tuple[Field, ...]] = {}

    def to_client(self, headers: Iterable[Field]) -> list[Field]:
        """Return the fields that pass, in their order. Heads of one server are mostly alike, so they are remembered."""
        came = tuple(headers)
        passed = self._known.get(came)
        if passed is None:
            passed = tuple(self._passing(came))
            if sum(len(name) + len(value) for name, value in came) <= KNOWN_SIZE:
                if len(self._known) >= KNOWN_AT_MOST:
                    self._known.clear()
                self._known[came] = passed
        return [*passed]

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
