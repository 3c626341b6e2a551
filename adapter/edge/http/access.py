"""The check of Host, Origin and credentials, the answers to browsers about it, and the base of the URLs handed out.

Credentials in the heads of requests: OAuth access tokens, verified before a request is judged, and judged for each
resource; and the cookie of a person who signed in with their browser, in place of a token.
"""

from __future__ import annotations

import copy
import ipaddress
import re
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.request import FieldLines, Fields, Request
from adapter.errors import (
    BadRequest,
    ConsoleRefused,
    HostRefused,
    InsufficientScope,
    NavigationRefused,
    OriginRefused,
    Unauthorized,
)
from adapter.oauth.port import TokenVerifier
from adapter.rules.access.browser_sessions import TAB_FIELD, RoleRules, is_own_page
from adapter.rules.access.headers import ambiguous
from adapter.rules.access.host_and_origin_check import host_allowed, is_local, navigates, origin_allowed
from adapter.rules.access.principals import ANONYMOUS, Identity, Principals, bearer
from adapter.rules.access.resources import ANY, ProtectedResource, challenge, refusal_of
from adapter.rules.access.token_claims import VerifiedToken, digest_of
from adapter.rules.text.unicode import shown
from adapter.settings.core import Core, CorsSettings
from adapter.settings.section import is_loopback

if TYPE_CHECKING:
    from adapter.oauth.sign_in import BrowserSessions


CARRIER = "authorization"
"""The field, in lower case, that carries an access token (RFC 6750 §2.1); tokens in queries and bodies are none."""

QUIET = 10.0
"""Seconds after a refused token in which no other one at that resource is logged: anybody can send them."""

LONGEST = 300
"""Characters of what the log says of a token."""

_FOREIGN = "The access token is not for this resource."


class SeenToken(NamedTuple):
    """The access token of a head by its digest, None for a head without one, and what came of it.

    A token that was refused is not ``verified``; ``reason`` is the sentence about it.
    """

    digest: bytes | None
    verified: VerifiedToken | None = None
    reason: str | None = None


class AccessTokens:
    """Judges access tokens for ``resources``, by their names.

    Requests on one connection share a head as long as it stays the same, so its token is kept with it. Each request
    asks the verifier whether the token still counts; if not, everything that followed from it is found out anew.
    """

    def __init__(
        self,
        verifier: TokenVerifier,
        resources: Mapping[str, ProtectedResource],
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._verifier = verifier
        self._log = log
        self._quiet: dict[str, float] = {}
        self.resources = dict(resources)

    def __repr__(self) -> str:
        return f"<AccessTokens for {len(self.resources)} resources>"

    def is_current(self, headers: Fields) -> bool:
        """Tell whether the token of this head was seen, and is verified and known at this moment."""
        seen: SeenToken | None = headers.shared.get(self)
        if seen is None:
            return False
        digest, verified, _ = seen
        return digest is None or (verified is not None and self._verifier.recall(digest) is verified)

    async def see(self, headers: Fields, token: str | None) -> None:
        """Verify the token of a head that has none which is current. Raises AdapterError, but not Unauthorized."""
        if self in headers.shared:
            headers.forget()
        headers.shared[self] = SeenToken(None) if token is None else await self._verified(token)

    async def _verified(self, token: str) -> SeenToken:
        try:
            verified = self._verifier.known(token) or await self._verifier.verify(token)
            return SeenToken(digest_of(token), verified)
        except Unauthorized as error:
            # Not the error itself, for it keeps the frames that it went through.
            return SeenToken(digest_of(token), reason=str(error))

    def identity(self, headers: Fields, resource: str, withheld: frozenset[str], *, sent: bool) -> Identity:
        """The bearer of this head's token. ``sent``: the head has a credential, which is no static token.

        Raises Unauthorized and InsufficientScope, with the challenge of the resource.
        """
        wanted = self.resources[resource]
        seen: SeenToken | None = headers.shared.get(self)
        verified = None if seen is None else seen.verified
        if verified is None:
            if sent and seen is not None:
                self._note(resource, seen.reason or Unauthorized.hint)
            raise _unauthorized(wanted, None if seen is None else seen.reason, sent=sent)
        refused = refusal_of(verified, wanted)
        if refused == "audience":
            self._note(resource, _FOREIGN, verified)
            raise _unauthorized(wanted, _FOREIGN, sent=True)
        if refused == "scope":
            error = InsufficientScope()
            self._note(resource, str(error), verified)
            error.challenge = challenge(wanted, verified.required_scopes, "insufficient_scope", str(error))
            raise error
        return Identity(verified.principal, withheld, verified.scopes, verified.claims, verified.expires)

    def _note(self, resource: str, why: str, verified: VerifiedToken | None = None) -> None:
        """Log why a token was refused, never the token. Of one that nobody vouches for no claim is told."""
        now = time.monotonic()
        if self._log is None or now < self._quiet.get(resource, 0.0):
            return
        self._quiet[resource] = now + QUIET
        said = {}
        if verified is not None:
            found = {
                "issuer": str(verified.claims.get("iss")),
                "audiences": " ".join(sorted(verified.audiences)),
                "scopes": " ".join(sorted(verified.scopes)),
            }
            said = {name: shown(text, LONGEST) for name, text in found.items()}
        self._log.info("an access token was refused", resource=resource, why=shown(why, LONGEST), **said)


def _unauthorized(resource: ProtectedResource, reason: str | None, *, sent: bool) -> Unauthorized:
    error = Unauthorized(reason)
    # RFC 6750 §3.1: who sent no credential is told of no error.
    failed = ("invalid_token", str(error)) if sent else (None, None)
    error.challenge = challenge(resource, resource.scopes, *failed)
    return error


_COOKIE = frozenset({"authorization", "cookie"})


class BrowserIdentities:
    """Finds who signed in with the browser that makes a request. ``base`` is the public URL of the adapter."""

    def __init__(self, sessions: BrowserSessions, base: str, roles: RoleRules) -> None:
        self._sessions = sessions
        self._base = base
        self._roles = roles

    def identify(self, headers: Fields, token_header: str) -> Identity | None:
        """The person by their cookie; None where there is none, and for a request with a token, which counts alone.

        A cookie counts for scripts of our own pages only. Raises ConsoleRefused for people without a role.
        """
        if headers.get("Authorization") is not None or headers.get(token_header) is not None:
            return None
        if not is_own_page(headers, self._base, TAB_FIELD):
            return None
        session = self._sessions.of(headers)
        if session is None:
            return None
        if self._roles.role_of(session.scopes, session.claims) is None:
            raise ConsoleRefused.to(self._roles.needed)
        return Identity(session.principal, _COOKIE, session.scopes, session.claims, session.expires)


MCP_METHODS = "GET, POST, DELETE, OPTIONS"


class Guard:
    """Decides from headers alone.

    ``principals`` are the static tokens, and ``access_tokens`` judges those of OAuth; with neither no token is needed.
    """

    def __init__(
        self, core: Core, principals: Principals | None = None, access_tokens: AccessTokens | None = None
    ) -> None:
        token_header, cors = core.auth.header_name, core.cors
        self._loopback = is_loopback(core.host)
        self._exposed = core.exposure is not None
        self._hosts = core.allowed_hosts
        self._origins = (
            *(core.allowed_origins or ()),
            *(cors.allowed_origins if cors.enabled else ()),
        ) or None
        self._principals = principals
        self._token_header = token_header
        self.reads_session_id = token_header.lower() == "mcp-session-id"
        """Whether another session id may be another principal's token."""
        self._cors = cors if cors.enabled else None
        self._withhold = frozenset({token_header.lower()})
        self._withhold_bearer = self._withhold | {CARRIER}
        self.access_tokens = access_tokens
        """Judges OAuth access tokens; None where none is accepted."""
        self._browsers: BrowserIdentities | None = None
        self._anonymous: Identity | None = None
        if principals is None and access_tokens is None:
            self._anonymous = Identity(ANONYMOUS, self._withhold)

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

    def with_browsers(self, browsers: BrowserIdentities) -> Guard:
        """Return the guard of pages, which knows people who signed in with their browser by their cookie too.

        No other entrance has it: any page can make a browser send its cookie there.
        """
        other = copy.copy(self)
        other._browsers = browsers
        return other

    # --- credentials ------------------------------------------------------------------------------------------

    async def verify(self, headers: Fields) -> None:
        """Verify the access token of a head, if it has one; needed once for each request, before ``identify``.

        Raises AdapterError where that is impossible now. A bad token raises nothing here.
        """
        if self.access_tokens is not None and not self.access_tokens.is_current(headers):
            await self.access_tokens.see(headers, self._access_token(headers))

    def _access_token(self, headers: Fields) -> str | None:
        """The access token of a head; None for one with a static token, or without any."""
        if CARRIER not in self._withhold and headers.get(self._token_header) is not None:
            return None
        token = bearer(headers.get(CARRIER))
        return None if token is None or self._static(token) is not None else token

    def identify(self, headers: Mapping[str, str], resource: str) -> Identity:
        """The one who asks for ``resource``: the id of a server, CONSOLE or ANY.

        Raises Unauthorized and InsufficientScope. The token header counts before ``Authorization: Bearer``, and static
        tokens count before access tokens.
        """
        if self._anonymous is not None:
            return self._anonymous
        if not isinstance(headers, Fields):
            return self._found(headers, resource)
        if self._browsers is not None:
            # Asked each time, since it may have expired.
            person = self._browsers.identify(headers, self._token_header)
            if person is not None:
                return person
        # Requests on one connection share a head as long as it stays the same, and several here ask whose it is.
        found: Identity | None = headers.derived.get((self, resource))
        if found is None:
            found = headers.derived[self, resource] = self._found(headers, resource)
        return found

    def _found(self, headers: Mapping[str, str], resource: str) -> Identity:
        token, withheld = headers.get(self._token_header), self._withhold
        if token is None:
            token, withheld = bearer(headers.get(CARRIER)), self._withhold_bearer
        principal = None if token is None else self._static(token)
        if principal is not None:
            return Identity(principal, withheld)
        if self.access_tokens is None or not isinstance(headers, Fields):
            raise Unauthorized()
        return self.access_tokens.identity(headers, resource, withheld, sent=token is not None)

    def _static(self, token: str) -> str | None:
        """The principal of a static token, None for any other."""
        return None if self._principals is None else self._principals.accept(token)

    def principal_of(self, headers: Mapping[str, str], resource: str) -> str | None:
        """The principal that asks; None for a stranger."""
        try:
            return self.identify(headers, resource).principal
        except Unauthorized:
            return None

    def known(self, headers: Mapping[str, str]) -> bool:
        """Tell whether the request may see details: it carries a good token, or ``trusts`` holds."""
        principal = self.principal_of(headers, ANY)
        return principal is not None and (principal != ANONYMOUS or self.trusts(headers))

    def trusts(self, headers: Mapping[str, str]) -> bool:
        """Tell whether somebody without a credential is trusted as an operator: a caller on this machine, where nobody
        else reaches the adapter. Being bound to loopback alone says nothing, since a proxy may stand there.
        """
        return not self._exposed and is_local(headers)

    # --- browsers ---------------------------------------------------------------------------------------------

    def cors_fields(
        self, headers: Mapping[str, str], exposed: Sequence[str] = (), *, any_origin: bool = False
    ) -> FieldLines:
        """The additional fields of an answer to a page at an allowed origin (Fetch standard, "CORS protocol").

        ``exposed`` are the fields of the route's own that the page may read, besides those of every answer.
        ``any_origin``: a page at any other origin may read it too, if it sends no credentials.
        """
        fields = [] if self._cors is None else _cors_fields(self._cors, headers, exposed)
        if any_origin and not fields and "Origin" in headers:
            return [
                ("Access-Control-Allow-Origin", "*"),
                ("Access-Control-Expose-Headers", ", ".join(("Retry-After", *exposed))),
                ("Vary", "Origin"),
            ]
        return fields

    def preflight_fields(
        self,
        headers: Mapping[str, str],
        methods: Sequence[str] | None = None,
        *,
        any_origin: bool = False,
    ) -> FieldLines | None:
        """The answer to a preflight (Fetch standard, "CORS-preflight request"), or None: it is none.

        ``methods`` are those of a file route; without them it is a mount that is asked about. ``any_origin``: see
        ``cors_fields``.
        """
        fields = self.cors_fields(headers, any_origin=any_origin)
        if not fields or "Access-Control-Request-Method" not in headers:
            return None
        requested = headers.get("Access-Control-Request-Headers")
        own = _ALLOWED_HEADERS if methods is None else _FILE_HEADERS
        # Said back by name: a literal * does not cover Authorization.
        allowed = requested or f"{own}, {self._token_header}"
        return [
            *fields,
            ("Access-Control-Allow-Methods", ", ".join(methods or _ALLOWED_METHODS)),
            ("Access-Control-Allow-Headers", allowed),
            ("Access-Control-Max-Age", _MAX_AGE),
        ]


_ALLOWED_METHODS = ("GET", "POST", "DELETE", "OPTIONS")
_ALLOWED_HEADERS = (
    "Accept, Authorization, Content-Type, Last-Event-ID, "
    "Mcp-Method, Mcp-Name, Mcp-Session-Id, MCP-Protocol-Version"
)
_FILE_HEADERS = "Authorization, Content-Type, If-None-Match, If-Range, Mcp-Session-Id, Range"
_EXPOSED_HEADERS = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After"
_MAX_AGE = "600"
"""Seconds that a browser may keep a preflight answer."""


def _cors_fields(cors: CorsSettings, headers: Mapping[str, str], exposed: Sequence[str]) -> FieldLines:
    origin = headers.get("Origin")
    if origin is None or not origin_allowed(origin, headers.get("Host"), allowed=cors.allowed_origins):
        return []
    return [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", ", ".join((_EXPOSED_HEADERS, *exposed))),
        ("Vary", "Origin"),
    ]


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
        # Requests share a head as long as it stays the same, also those of other peers.
        key = _BASE, request.peer
        base: str | None = request.headers.shared.get(key)
        if base is None:
            base = request.headers.shared[key] = self._said_by(request)
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
