"""The sign-in of people with their browser: authorization code with PKCE, for the adapter's own pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from adapter.errors import AdapterError
from adapter.oauth.client_authentication import proof_of, request_tokens
from adapter.oauth.discovery import Refreshed
from adapter.oauth.port import TokenVerifier
from adapter.rules.access.access_rules import claim_of
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.browser_sessions import BrowserSession
from adapter.rules.access.grants import (
    GrantRefused,
    OAuthClient,
    authorization_url,
    code_exchange,
    code_request,
    configured_client,
    issuer_agrees,
)
from adapter.rules.access.resources import ProtectedResource, refusal_of
from adapter.settings.auth import OAuthIssuer
from adapter.settings.console import ConsoleOAuth
from adapter.state.port import ABSENT, Conflict, Store, delete_overdue
from adapter.upstream.outgoing import IssuerHttp

VALID = 600
"""Seconds for which a browser may be away at its authorization server."""

SESSION_SECONDS = 8 * 3600.0
"""Seconds for which a browser stays signed in."""

USED = "used_sign_ins"
"""The table of sign-ins that came to an end, so that none does twice."""

LONGEST_PARAMETER = 4096
"""Characters of a parameter with which a browser returns."""


class SignInFailed(Exception):
    """A browser cannot be signed in. ``str(error)`` is a sentence for its person, without anything of a stranger's."""


class SignInConfig(NamedTuple):
    """``console.oauth`` with its issuer, and what follows from the settings.

    ``redirect`` is the URL to which browsers return, ``resource`` the console as a resource, with the scopes to ask
    for. Of the claims of a person those are kept that ``kept_claims`` names.
    """

    console: ConsoleOAuth
    issuer: OAuthIssuer
    redirect: str
    resource: ProtectedResource
    kept_claims: frozenset[str] = frozenset()

    @property
    def client(self) -> OAuthClient:
        """The adapter at the issuer."""
        return configured_client(self.console.client_id, self.console.client_secret, "client_secret_basic")

    @property
    def named_resource(self) -> str:
        """The resource that is sent along (RFC 8707)."""
        # An issuer whose tokens have an audience of its own may refuse a parameter that it does not know.
        return self.resource.url if self.issuer.audience is None else ""


class PendingSignIn(NamedTuple):
    """The part that the browser keeps, sealed, while its person is at the authorization server."""

    state: str
    verifier: str
    place: str
    due: float


@dataclass(eq=False)
class SignIn:
    """Sends browsers to the issuer, and takes their answers. ``clock`` gives Unix seconds."""

    terms: SignInConfig
    metadata: Refreshed[ServerMetadata]
    http: IssuerHttp
    tokens: TokenVerifier
    store: Store
    clock: Callable[[], float] = time.time

    def __repr__(self) -> str:
        return f"<SignIn at {self.terms.issuer.issuer}>"

    async def begin(self, place: str) -> tuple[str, bytes]:
        """The URL at the issuer to which a browser goes, and the data that it keeps; it returns to ``place``.

        Raises SignInFailed.
        """
        terms, endpoint = self.terms, await self._endpoint("authorization_endpoint")
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        pending = PendingSignIn(state, verifier, place, self.clock() + VALID)
        asked = code_request(
            terms.client.id, terms.redirect, state, verifier, terms.resource.scopes, terms.named_resource
        )
        return authorization_url(endpoint, asked), orjson.dumps(list(pending))

    async def finish(self, kept: bytes | None, parameters: Mapping[str, str]) -> tuple[BrowserSession, str]:
        """The session of a browser that returns with ``parameters``, and the place to which it goes.

        ``kept`` is what it was given. Raises SignInFailed, StoreUnavailable.
        """
        pending = self._pending(kept, parameters)
        await self._use(pending)
        metadata = await self._metadata()
        required = metadata.says("authorization_response_iss_parameter_supported")
        # RFC 9207: an answer of another server would have its code sent to this one, or the other way round.
        if not issuer_agrees(parameters.get("iss"), self.terms.issuer.issuer, required=required):
            raise SignInFailed("The answer is of another authorization server.")
        if "error" in parameters or not parameters.get("code"):
            raise SignInFailed("The authorization server did not sign you in.")
        return await self._session(pending, parameters["code"]), pending.place

    async def tidy(self) -> None:
        """Forget sign-ins whose answer would be too late anyway. Raises StoreUnavailable."""
        await delete_overdue(self.store, USED, self.clock())

    # --- the answer -------------------------------------------------------------------------------------------

    def _pending(self, kept: bytes | None, parameters: Mapping[str, str]) -> PendingSignIn:
        if kept is None:
            raise SignInFailed("This sign-in was not begun in this browser, or it took too long.")
        pending = PendingSignIn(*orjson.loads(kept))
        if any(len(value) > LONGEST_PARAMETER for value in parameters.values()):
            raise SignInFailed("The answer of the authorization server is too long.")
        state = parameters.get("state", "").encode("utf-8", "replace")
        if not hmac.compare_digest(state, pending.state.encode()):
            raise SignInFailed("The answer belongs to another sign-in.")
        if pending.due <= self.clock():
            raise SignInFailed("The sign-in took too long.")
        return pending

    async def _use(self, pending: PendingSignIn) -> None:
        key = hashlib.sha256(pending.state.encode()).hexdigest()
        try:
            await self.store.put(USED, key, b"", expected=ABSENT, due=pending.due)
        except Conflict:
            raise SignInFailed("This sign-in was finished before.") from None

    async def _session(self, pending: PendingSignIn, code: str) -> BrowserSession:
        form = code_exchange(code, self.terms.redirect, pending.verifier, self.terms.named_resource)
        try:
            endpoint = await self._endpoint("token_endpoint")
            tokens = await request_tokens(self.http, endpoint, proof_of(self.terms.client), form)
        except (AdapterError, GrantRefused, ValueError) as error:
            raise SignInFailed("The authorization server gave no token for this sign-in.") from error
        try:
            token = await self.tokens.verify(tokens.access)
        except AdapterError as error:
            raise SignInFailed(f"The authorization server's token is not accepted: {error}") from error
        refused = refusal_of(token, self.terms.resource)
        if refused == "audience":
            raise SignInFailed("The authorization server's token is not for the console.")
        if refused == "scope":
            raise SignInFailed("The authorization server's token lacks a scope that is required here.")
        names = (name for name in self.terms.kept_claims if claim_of(token.claims, name) is not None)
        claims = {name: claim_of(token.claims, name) for name in names}
        return BrowserSession(token.principal, token.scopes, claims, self.clock() + SESSION_SECONDS)

    # --- the issuer -------------------------------------------------------------------------------------------

    async def _metadata(self) -> ServerMetadata:
        try:
            return await self.metadata.get()
        except AdapterError as error:
            raise SignInFailed("The authorization server cannot be reached now.") from error

    async def _endpoint(self, name: str) -> str:
        try:
            return (await self._metadata()).url(name)
        except ValueError as error:
            raise SignInFailed("The authorization server's metadata cannot be used.") from error
