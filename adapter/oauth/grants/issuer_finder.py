"""The authorization server of an upstream, by the settings or by the upstream's own metadata, and what it grants; and
the adapter as its client: configured, by a metadata document, or registered by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
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
from adapter.rules.access.grants import OAuthClient, client_metadata, configured_client, read_registration
from adapter.rules.access.host_and_origin_check import is_loopback_host
from adapter.settings.servers.upstream_auth import UpstreamAuth
from adapter.state.port import ABSENT, Conflict
from adapter.state.sealed_rows import SealedRows
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


TABLE = "oauth_clients"

CLIENT_NAME = "mcp-file-adapter"


class ClientRegistry:
    """Knows the client id of one server at its issuers. ``clock`` gives Unix time in seconds."""

    def __init__(
        self, terms: GrantConfig, rows: SealedRows, http: IssuerHttp, clock: Callable[[], float] = time.time
    ) -> None:
        self.terms = terms
        self.http = http
        self._rows = rows
        self._clock = clock
        self._registering = asyncio.Lock()

    async def client_for(self, issuer: ServerMetadata) -> OAuthClient:
        """The client for new grants, in the order of MCP 2026-07-28, "Client Registration".

        Raises AuthorizationFailed where there is no way to be one, GrantRefused and ValueError for a registration that
        failed, StoreUnavailable, and what the network raises.
        """
        if self.terms.auth.client_id is not None:
            return self._configured(issuer.names("token_endpoint_auth_methods_supported"))
        # A document counts by its https URL; elsewhere nobody can fetch it.
        reads_documents = issuer.says("client_id_metadata_document_supported")
        if reads_documents and self.terms.document.startswith("https://"):
            return OAuthClient(self.terms.document)
        # One at a time: each registration is a client that the server keeps for good.
        async with self._registering:
            kept = await self._kept(issuer.issuer)
            if kept is not None and not 0 < kept.expires <= self._clock():
                return kept
            endpoint = issuer.url_if_any("registration_endpoint")
            if endpoint is None:
                raise AuthorizationFailed(
                    f"The authorization server of {self.terms.server} registers no clients by itself: "
                    "servers[].upstream.auth.client_id must be set."
                )
            return await self._registered(issuer.issuer, endpoint)

    async def client_of(self, issuer: str, client_id: str) -> OAuthClient | None:
        """The client that a grant was issued to; None where its credentials are no longer known."""
        if client_id == self.terms.auth.client_id:
            return self._configured(())
        if client_id == self.terms.document:
            return OAuthClient(client_id)
        kept = await self._kept(issuer)
        return kept if kept is not None and kept.id == client_id else None

    async def forget(self, issuer: str, client_id: str) -> None:
        """Register anew next time: the issuer does not know this client any more. Raises StoreUnavailable."""
        kept = await self._kept(issuer)
        if kept is not None and kept.id == client_id:
            await self._rows.delete(TABLE, self._key(issuer))

    async def _registered(self, issuer: str, endpoint: str) -> OAuthClient:
        # Looked at first: a row that is written meanwhile is that of another replica, and counts.
        found = await self._rows.store.get(TABLE, self._key(issuer))
        body = orjson.dumps(self.metadata())
        client = read_registration(*await self.http.post(endpoint, body, "application/json"))
        key, value = self._key(issuer), orjson.dumps(client._asdict())
        try:
            await self._rows.put(TABLE, key, value, expected=ABSENT if found is None else found.version)
        except Conflict:
            # Another replica has registered at the same time; its client is the one that others will find.
            return await self._kept(issuer) or client
        return client

    def metadata(self) -> dict[str, Any]:
        """The members by which the adapter describes itself to an issuer."""
        base = urlsplit(self.terms.base)
        # OpenID Connect Registration §2: a native client's loopback URIs are http, so one of https is a web client's.
        local = base.scheme == "http" and is_loopback_host(base.hostname)
        return client_metadata(CLIENT_NAME, self.terms.redirect, loopback=local)

    async def _kept(self, issuer: str) -> OAuthClient | None:
        found = await self._rows.get(TABLE, self._key(issuer))
        try:
            return None if found is None else OAuthClient(**orjson.loads(found[1]))
        except (TypeError, orjson.JSONDecodeError):
            return None

    def _configured(self, methods: tuple[str, ...]) -> OAuthClient:
        auth = self.terms.auth
        assert auth.client_id is not None
        only_post = "client_secret_post" in methods and "client_secret_basic" not in methods
        method = "client_secret_post" if only_post else "client_secret_basic"
        return configured_client(auth.client_id, auth.client_secret, auth.client_authentication or method)

    def _key(self, issuer: str) -> str:
        """A registration holds for one issuer and one redirect URI."""
        digest = hashlib.sha256(f"{issuer}\0{self.terms.redirect}".encode()).hexdigest()
        return f"{self.terms.server}/{digest}"
