"""The check of Host, Origin and token, the answers to browsers about it, and the base of URLs that are handed out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from adapter.edge.http.request import Fields, Request
from adapter.errors import BadRequest, HostRefused, NavigationRefused, OriginRefused, Unauthorized
from adapter.rules.access.headers import ambiguous
from adapter.rules.access.host_and_origin_check import host_allowed, navigates, origin_allowed
from adapter.rules.access.principals import ANONYMOUS, Principals, bearer

MCP_METHODS = "GET, POST, DELETE, OPTIONS"


@dataclass(frozen=True, slots=True)
class Cors:
    """``origins`` may hold ``*``, but not with ``credentials``: whether browsers may send theirs along.

    ``headers`` are what clients may send beside MCP's own, ``max_age`` is in seconds.
    """

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    credentials: bool
    max_age: int


_ALLOWED_HEADERS = (
    "Accept, Authorization, Content-Type, Last-Event-ID, "
    "Mcp-Method, Mcp-Name, Mcp-Session-Id, MCP-Protocol-Version"
)
_FILE_HEADERS = "Authorization, Content-Type, If-None-Match, If-Range, Mcp-Session-Id, Range"
_EXPOSED_HEADERS = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"


class Guard:
    """Decides from headers alone. Without ``principals`` no token is needed."""

    def __init__(
        self,
        *,
        bound_to_loopback: bool,
        hosts: Sequence[str] | None,
        origins: Sequence[str] | None,
        principals: Principals | None,
        token_header: str,
        cors: Cors | None,
    ) -> None:
        self._loopback = bound_to_loopback
        self._hosts = hosts
        self._origins = (*(origins or ()), *(cors.origins if cors else ())) or None
        self._principals = principals
        self._token_header = token_header
        self.reads_session_id = token_header.lower() == "mcp-session-id"
        """Whether another session id may be another principal's token."""
        self._cors = cors
        self._withhold = frozenset({token_header.lower()})
        self._withhold_bearer = self._withhold | {"authorization"}

    def check_mount(self, headers: Mapping[str, str]) -> None:
        """Check a request to a mount, which no browser opens as a page. Raises as ``check_place``, and
        NavigationRefused.
        """
        self.check_place(headers)
        if navigates(headers.get("Sec-Fetch-Mode")):
            raise NavigationRefused()

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Check Host and Origin. Raises HostRefused, OriginRefused, and BadRequest for a deciding field that is
        repeated.
        """
        self.check_host(headers)
        origin = headers.get("Origin")
        if origin is not None and not origin_allowed(origin, headers.get("Host"), allowed=self._origins):
            raise OriginRefused()

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Check the Host, for content that pages of any origin may have. Raises HostRefused, and BadRequest as
        ``check_place``.
        """
        if not self.serves(headers.get("Host")):
            raise HostRefused()
        if isinstance(headers, Fields) and headers.repeated:
            name = ambiguous(headers.repeated, self._token_header.lower())
            if name is not None:
                raise BadRequest(f"The header {name} may occur only once.")

    def serves(self, host: str | None, *, forwarded: bool = False) -> bool:
        """Tell whether this Host is served.

        A Host that a trusted proxy has ``forwarded`` may be any, unless the allowed Hosts are listed: the adapter
        behind a proxy is bound to loopback, and the proxy's own Host is not.
        """
        return host_allowed(host, bound_to_loopback=self._loopback and not forwarded, allowed=self._hosts)

    def principal(self, headers: Mapping[str, str]) -> tuple[str, frozenset[str]]:
        """The principal that asks, and the fields (lower case) that carried the adapter's own credential.

        Raises Unauthorized. The token header counts before ``Authorization: Bearer``.
        """
        if self._principals is None:
            return ANONYMOUS, self._withhold
        if not isinstance(headers, Fields):
            return self._found(self._principals, headers)
        # Requests on one connection share a head as long as it stays the same, and several here ask whose it is.
        found: tuple[str, frozenset[str]] | None = headers.derived.get(self)
        if found is None:
            found = headers.derived[self] = self._found(self._principals, headers)
        return found

    def _found(self, principals: Principals, headers: Mapping[str, str]) -> tuple[str, frozenset[str]]:
        token = headers.get(self._token_header)
        withhold = self._withhold
        if token is None:
            token = bearer(headers.get("Authorization"))
            withhold = self._withhold_bearer
        principal = principals.accept(token) if token is not None else None
        if principal is None:
            raise Unauthorized()
        return principal, withhold

    def principal_of(self, headers: Mapping[str, str]) -> str | None:
        """The principal that asks; None for a stranger."""
        try:
            return self.principal(headers)[0]
        except Unauthorized:
            return None

    def known(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the request may see details: it carries a good token, or no token is asked for."""
        return self.principal_of(headers) is not None

    # --- browsers ---------------------------------------------------------------------------------------------

    def cors_fields(self, headers: Mapping[str, str], exposed: Sequence[str] = ()) -> list[tuple[str, str]]:
        """The additional fields of an answer to a page at an allowed origin.

        ``exposed`` are the fields of the route's own that the page may read, besides those of every answer.
        """
        if self._cors is None:
            return []
        origin = headers.get("Origin")
        if origin is None or not self._cors_allows(origin, headers.get("Host")):
            return []
        fields = [
            ("Access-Control-Allow-Origin", origin),
            ("Access-Control-Expose-Headers", ", ".join((_EXPOSED_HEADERS, *exposed))),
            ("Vary", "Origin"),
        ]
        if self._cors.credentials:
            fields.append(("Access-Control-Allow-Credentials", "true"))
        return fields

    def preflight_fields(
        self, headers: Mapping[str, str], methods: Sequence[str] | None = None
    ) -> list[tuple[str, str]] | None:
        """The answer to a preflight (Fetch standard, "CORS-preflight request"), or None: it is none.

        ``methods`` are those of a file route; without them it is a mount that is asked about.
        """
        fields = self.cors_fields(headers)
        if self._cors is None or not fields or "Access-Control-Request-Method" not in headers:
            return None
        requested = headers.get("Access-Control-Request-Headers")
        own = _ALLOWED_HEADERS if methods is None else _FILE_HEADERS
        allowed = ", ".join((own, self._token_header, *self._cors.headers))
        if requested is not None and "*" in self._cors.headers:
            # Said back by name: a literal * does not cover Authorization, nor anything with credentials.
            allowed = requested
        return [
            *fields,
            ("Access-Control-Allow-Methods", ", ".join(methods or self._cors.methods)),
            ("Access-Control-Allow-Headers", allowed),
            ("Access-Control-Max-Age", str(self._cors.max_age)),
        ]

    def _cors_allows(self, origin: str, host: str | None) -> bool:
        assert self._cors is not None
        return origin_allowed(origin, host, allowed=self._cors.origins)


# --- the base of URLs ------------------------------------------------------------------------------------------

_SCHEMES = ("http", "https")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
"""A Host as it may stand in a URL: people paste those into shells, so nothing else may come in with it."""

_BASE = object()


class Bases:
    """``public_base_url`` counts for every request, where there is one.

    Otherwise it is what the client itself said: a base that it can reach, and none that somebody else could
    have chosen, since only Hosts that ``guard`` serves count. ``X-Forwarded-Proto`` and ``X-Forwarded-Host``
    count when they come from a peer in ``trusted_proxies``.
    """

    def __init__(
        self,
        public_base_url: str | None,
        guard: Guard,
        trusted_proxies: Sequence[IPv4Network | IPv6Network] = (),
    ) -> None:
        self._public = public_base_url.rstrip("/") if public_base_url else None
        self._guard = guard
        self._proxies = tuple(trusted_proxies)

    def __repr__(self) -> str:
        return f"<Bases: {self._public or 'as the client says'}, {len(self._proxies)} proxy networks>"

    def of(self, request: Request) -> str:
        """``scheme://host`` without a final slash; empty if the client named no host that may stand in a URL, so that
        URLs are relative then.
        """
        if self._public is not None:
            return self._public
        # Requests on one connection share a head as long as it stays the same, and all of them their peer.
        base: str | None = request.headers.shared.get(_BASE)
        if base is None:
            base = request.headers.shared[_BASE] = self._said_by(request)
        return base

    def _said_by(self, request: Request) -> str:
        scheme, host, forwarded = "http", request.headers.get("Host", ""), ""
        if self._proxies and self._trusted(request.peer):
            forwarded_scheme = _last(request.headers, "x-forwarded-proto").lower()
            scheme = forwarded_scheme if forwarded_scheme in _SCHEMES else scheme
            forwarded = _last(request.headers, "x-forwarded-host")
        host = forwarded or host
        if _HOST.fullmatch(host) is None or not self._guard.serves(host, forwarded=bool(forwarded)):
            return ""
        return f"{scheme}://{host}"

    def _trusted(self, peer: str | None) -> bool:
        if peer is None:
            return False
        address = ipaddress.ip_address(peer.partition("%")[0])
        # A socket that takes both families shows IPv4 peers as ::ffff:a.b.c.d.
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._proxies)


def _last(headers: Fields, name: str) -> str:
    """The value that the nearest proxy added, which is the last one. Earlier values may come from anybody."""
    values = [value for field, value in headers.pairs if field.lower() == name]
    return values[-1].rpartition(",")[2].strip() if values else ""
