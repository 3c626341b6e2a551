"""The address of an upstream, and the bytes of a request to it. Pure: opens nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

from adapter.errors import BadRequest
from adapter.upstream.port import UpstreamRequest
from adapter.wire.queries import is_query

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 §5.6.2
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_URL_CHARACTERS = "%/:?@!$&'()*+,;=[]~-._"
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
# HEAD and CONNECT are missing on purpose: their answers are framed by other rules, and MCP uses neither.
_METHODS = _METHODS_WITH_BODY | {"GET", "DELETE", "OPTIONS"}
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


class UpstreamAddress:
    """One http or https URL, parsed once. Raises ValueError with a sentence when it is not usable.

    ``str(endpoint)`` is the URL without its query, which may hold a key.
    """

    __slots__ = ("_openings", "_target", "authority", "host", "path", "port", "tls")

    def __init__(self, url: str) -> None:
        if _CONTROL.search(url):
            raise ValueError("The upstream URL contains white space or control characters.")
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError("The upstream URL must look like http://host[:port]/path or https://….")
        if "@" in parts.netloc:
            raise ValueError(
                "The upstream URL contains credentials; send them as an Authorization header in "
                "upstream.static_headers instead."
            )
        self.tls = parts.scheme == "https"
        self.host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode("ascii")
        self.port = parts.port or _DEFAULT_PORTS[parts.scheme]
        self.path = quote(parts.path or "/", safe=_URL_CHARACTERS)
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = shown if self.port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{self.port}"
        query = quote(parts.query, safe=_URL_CHARACTERS)
        self._target = f"{self.path}?{query}" if query else self.path
        self._openings = {method: self._opening(method, self._target) for method in _METHODS}

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.path}"

    def head(self, request: UpstreamRequest) -> bytes:
        """Request line and fields up to the empty line. Raises BadRequest for what cannot be sent safely."""
        method, fields, body = request.method, request.headers, request.body
        opening = self._openings.get(method)
        if opening is None:
            raise BadRequest(f"The method {method!r} cannot be sent to an upstream.")
        if request.query:
            opening = self._opening(method, self._with(request.query))
        length = b"Content-Length: %d\r\n" % len(body) if body or method in _METHODS_WITH_BODY else b""
        return opening + _encoded(tuple(fields)) + length + b"\r\n"

    def _opening(self, method: str, target: str) -> bytes:
        return f"{method} {target} HTTP/1.1\r\nHost: {self.authority}\r\n".encode("ascii")

    def _with(self, query: str) -> str:
        """The target with ``query`` behind its own."""
        if not is_query(query):
            raise BadRequest("The query of the request's target contains characters that a URL may not have.")
        return f"{self._target}{'&' if '?' in self._target else '?'}{query}"


# The calls of one session bring the same fields each time; to know them again costs an eighth of this.
@lru_cache(maxsize=512)
def _encoded(fields: tuple[tuple[str, str], ...]) -> bytes:
    """The fields as lines. Raises BadRequest for what cannot be sent safely."""
    lines = []
    for name, value in fields:
        _check_name(name)
        lines.append(f"{name}: {value}\r\n")
    head = "".join(lines)
    # One look at the joined text costs less than one at each value: every line end has to be ours.
    if head.count("\n") != len(lines) or head.count("\r") != len(lines) or "\0" in head:
        raise BadRequest("A header value contains a line break or NUL.")
    try:
        return head.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadRequest("A header value contains characters that HTTP does not allow.") from error


@lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    """Raises BadRequest for what is no field name, and for fields that decide where a message ends."""
    if not _TOKEN.fullmatch(name):
        raise BadRequest("A header name contains characters that HTTP does not allow.")
    if name.lower() in _OURS:
        raise BadRequest(f"The header {name} is set by the adapter itself.")
