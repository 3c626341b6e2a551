"""The adapter as a client of authorization servers: configured, by its metadata document, or registered by itself."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson

from adapter.errors import AuthorizationFailed
from adapter.oauth.grants.issuer_finder import GrantConfig
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.grants import OAuthClient, client_metadata, configured_client, read_registration
from adapter.rules.access.host_and_origin_check import is_loopback_host
from adapter.state.port import ABSENT, Conflict
from adapter.state.sealed_rows import SealedRows
from adapter.upstream.outgoing import IssuerHttp

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
