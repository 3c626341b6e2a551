"""The check of who may come in: Host, Origin, token; and what browsers are told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.edge.http.request import Fields
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
    """Decides from headers alone. ``principals`` None: no token is asked for."""

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
        self._cors = cors
        self._withhold = frozenset({token_header.lower()})
        self._withhold_bearer = self._withhold | {"authorization"}

    def check_mount(self, headers: Mapping[str, str]) -> None:
        """For mounts, which no browser opens as a page. Raises as ``check_place``, and NavigationRefused."""
        self.check_place(headers)
        if navigates(headers.get("Sec-Fetch-Mode")):
            raise NavigationRefused()

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Raises HostRefused, OriginRefused, and BadRequest for a field that decides something and is there twice."""
        self.check_host(headers)
        origin = headers.get("Origin")
        if origin is not None and not origin_allowed(origin, headers.get("Host"), allowed=self._origins):
            raise OriginRefused()

    def check_host(self, headers: Mapping[str, str]) -> None:
        """For what pages of any origin may have. Raises HostRefused, and BadRequest as ``check_place``."""
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
        origin = headers.get("Origin")
        if self._cors is None or origin is None or not self._cors_allows(origin, headers.get("Host")):
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
        asked = headers.get("Access-Control-Request-Headers")
        own = _ALLOWED_HEADERS if methods is None else _FILE_HEADERS
        allowed = ", ".join((own, self._token_header, *self._cors.headers))
        if asked is not None and "*" in self._cors.headers:
            # Said back by name: a literal * does not cover Authorization, nor anything with credentials.
            allowed = asked
        return [
            *fields,
            ("Access-Control-Allow-Methods", ", ".join(methods or self._cors.methods)),
            ("Access-Control-Allow-Headers", allowed),
            ("Access-Control-Max-Age", str(self._cors.max_age)),
        ]

    def _cors_allows(self, origin: str, host: str | None) -> bool:
        assert self._cors is not None
        return origin_allowed(origin, host, allowed=self._cors.origins)
