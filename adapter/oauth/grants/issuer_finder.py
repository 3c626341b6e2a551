"""The authorization server of an upstream: by the settings, or by the upstream's own metadata; and what it grants."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, AuthorizationFailed
from adapter.oauth.discovery import Refreshed, find_metadata
from adapter.rules.access.authorization_servers import (
    Challenge,
    ServerMetadata,
    UpstreamResource,
    is_usable_url,
    read_resource_metadata,
    require_code_grant,
    resource_metadata_urls,
    same_origin,
)
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.upstream.outgoing import IssuerHttp


class GrantConfig(NamedTuple):
    """``server`` is its id, ``url`` that of the upstream; what ``auth`` leaves out is as the upstream's metadata says.

    ``base`` is the public URL of the adapter, without a slash at its end.
    """

    server: str
    url: str
    base: str
    auth: UpstreamAuth

    def __repr__(self) -> str:
        return f"<GrantConfig of {self.server!r}>"

    @property
    def is_discovered(self) -> bool:
        """True where the upstream itself names the authorization server."""
        auth = self.auth
        return auth.issuer is None and (auth.authorization_endpoint is None or auth.token_endpoint is None)

    @property
    def knows_issuer(self) -> bool:
        """True where the issuer of an answer can be compared: settings may name endpoints only."""
        return self.auth.issuer is not None or self.is_discovered

    @property
    def place(self) -> str:
        """The URL below which a browser finds the pages of this server's grants."""
        return f"{self.base}{PREFIX}/{self.server}"

    @property
    def redirect(self) -> str:
        """The one redirect URI: of this server alone, so that no other server's answer is taken for its own."""
        return f"{self.place}/callback"

    @property
    def document(self) -> str:
        """The URL of the adapter's client id metadata document for this server."""
        return f"{self.place}/client.json"


PREFIX = "/authorize"
"""The path of all pages of grants."""


class GrantSource(NamedTuple):
    """The authorization server, resource and scopes of a grant; ``resource`` is empty where none is to be named."""

    issuer: ServerMetadata
    resource: str
    scopes: tuple[str, ...]


OFFLINE = "offline_access"
"""The scope that some servers demand for a refresh token (OpenID Connect Core §11)."""


@dataclass(eq=False)
class IssuerFinder:
    """Finds the authorization server of one upstream. ``clock`` gives seconds that never go back."""

    terms: GrantConfig
    http: IssuerHttp
    log: FilteringBoundLogger
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._source = Refreshed(self._asked, self.clock)
        self.challenge = Challenge(None)
        """The last one of the upstream that this process has seen."""

    def __repr__(self) -> str:
        return f"<IssuerFinder of {self.terms.server}>"

    def heard(self, value: str | None) -> None:
        """Take note of the upstream's WWW-Authenticate. The first that says something counts at once."""
        challenge = Challenge(value)
        if challenge.metadata is None and not challenge.scopes:
            return
        if self.challenge.metadata is None and not self.challenge.scopes:
            self._source.outdate()
        self.challenge = challenge

    async def find(self) -> GrantSource:
        """The authorization server, asked for now and then. Raises AuthorizationFailed."""
        return await self._source.get()

    async def _asked(self) -> GrantSource:
        try:
            return await self._discovered()
        except (AdapterError, ValueError) as error:
            self.log.warning(
                "the authorization server of an upstream was not found",
                server=self.terms.server,
                why=str(error),
            )
            failed = AuthorizationFailed()
            failed.reason = str(error)
            raise failed from error

    async def _discovered(self) -> GrantSource:
        url, auth = self.terms.url, self.terms.auth
        resource: UpstreamResource | None = None
        if auth.authorization_endpoint and auth.token_endpoint:
            named = auth.model_dump(include={"authorization_endpoint", "token_endpoint"})
            issuer = ServerMetadata(auth.issuer or auth.authorization_endpoint, named, None)
        elif auth.issuer:
            issuer = await self._issuer(auth.issuer, near=auth.issuer)
        else:
            resource = await self._resource()
            # Without such metadata the upstream may be of 2025-03-26, whose issuer is at its own origin.
            server = resource.servers[0] if resource else "{0.scheme}://{0.netloc}".format(urlsplit(url))
            issuer = await self._issuer(server, near=url)
        return GrantSource(issuer, self._resource_name(resource), self._scopes(resource, issuer))

    def _resource_name(self, found: UpstreamResource | None) -> str:
        if self.terms.auth.resource:
            return self.terms.auth.resource
        if self.terms.auth.authorization_endpoint is not None:
            # Its own endpoints are set: a server that knows nothing of MCP, and may refuse the parameter.
            return ""
        return found.resource if found else self.terms.url.partition("#")[0]

    def _scopes(self, resource: UpstreamResource | None, issuer: ServerMetadata) -> tuple[str, ...]:
        """The scopes to ask for, as MCP 2026-07-28 has clients choose them ("Scope Selection Strategy")."""
        if self.terms.auth.scopes:
            return tuple(self.terms.auth.scopes)
        scopes = self.challenge.scopes or (resource.scopes if resource else ())
        if scopes and OFFLINE in issuer.names("scopes_supported") and OFFLINE not in scopes:
            scopes = (*scopes, OFFLINE)
        return scopes

    async def _resource(self) -> UpstreamResource | None:
        url, named = self.terms.url, self.challenge.metadata
        told = [self.terms.auth.resource] if self.terms.auth.resource else []
        places = list(resource_metadata_urls(url, *told))
        # A challenge may name any place; only the upstream's own host is asked.
        if named is not None and same_origin(named, url) and is_usable_url(named, url):
            places.insert(0, named)
        for place in dict.fromkeys(places):
            status, document = await self.http.get(place)
            if status == 200:
                return read_resource_metadata(document, url, *told)
        return None

    async def _issuer(self, issuer: str, *, near: str) -> ServerMetadata:
        found = await find_metadata(self.http, issuer, near)
        require_code_grant(found)
        return found
