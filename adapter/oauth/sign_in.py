"""The sign-in of people with their browser for the adapter's own pages: authorization code with PKCE, and then a
session in a sealed cookie, which tells every replica who sits there.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from adapter.errors import AdapterError, Unauthorized
from adapter.oauth.discovery import Refreshed
from adapter.oauth.port import TokenVerifier
from adapter.oauth.upstream_credentials import proof_of, request_tokens
from adapter.rules.access.access_rules import claim_of
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.browser_sessions import (
    LARGEST_COOKIE,
    BrowserSession,
    cookie_of,
    decode_session,
    encode_session,
    set_cookie,
)
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
from adapter.settings.pipeline import ConsoleOAuth
from adapter.state.port import ABSENT, Conflict, Store, delete_overdue
from adapter.state.sealed_rows import StoreSeal
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


SESSION, SIGN_IN = "mcp_adapter_session", "mcp_adapter_sign_in"
"""The cookies of people who signed in, and of those who are under way to their authorization server."""

Fields = list[tuple[str, str]]


@dataclass(eq=False)
class BrowserSessions:
    """Reads and writes the cookies of the adapter at ``paths``, the public paths of its pages.

    ``seal`` is that of all replicas. ``secure``: browsers reach the adapter by https.
    Nothing is kept here: a cookie that was copied before its person signed out is good until it expires.
    """

    seal: StoreSeal
    paths: Sequence[str]
    secure: bool = field(kw_only=True)
    clock: Callable[[], float] = field(default=time.time, kw_only=True)

    def __post_init__(self) -> None:
        self.paths = tuple(self.paths)
        self._prefix = "__Secure-" if self.secure else ""

    def __repr__(self) -> str:
        return f"<BrowserSessions at {', '.join(self.paths)}>"

    async def open(self) -> None:
        """Read the key, also again where the store may be another one; before that nobody is signed in.

        Raises StoreUnavailable.
        """
        await self.seal.open()

    def of(self, headers: Mapping[str, str]) -> BrowserSession | None:
        """The session of the browser that sent these header fields, None for a stranger's.

        Any page may have caused the request: what changes something asks ``is_own_page`` besides, or shows a form of
        its own first.
        """
        value = cookie_of(headers.get("Cookie"), self._prefix + SESSION)
        data = None if value is None else self._unsealed(SESSION, value)
        return None if data is None else decode_session(data, self.clock())

    def begun(self, session: BrowserSession) -> Fields:
        """The fields of an answer that sign a person in. Raises Unauthorized where too much is to be kept."""
        value = self._sealed(SESSION, encode_session(session))
        if len(value) > LARGEST_COOKIE:
            raise Unauthorized("The claims that the settings ask for are too large for a cookie.")
        return self._set(SESSION, value, self.paths, int(session.expires - self.clock()))

    def ended(self) -> Fields:
        """The fields of an answer that sign the person out."""
        return self._set(SESSION, "", self.paths, 0)

    # --- on the way -------------------------------------------------------------------------------------------

    def under_way(self, data: bytes, seconds: int) -> Fields:
        """The fields of an answer that have the browser keep ``data`` until it returns."""
        return self._set(SIGN_IN, self._sealed(SIGN_IN, data), self.paths[:1], seconds)

    def returned(self, headers: Mapping[str, str]) -> bytes | None:
        """The data that this browser was given to keep; None for another browser."""
        value = cookie_of(headers.get("Cookie"), self._prefix + SIGN_IN)
        return None if value is None else self._unsealed(SIGN_IN, value)

    def arrived(self) -> Fields:
        """The fields of an answer that have the browser forget its data."""
        return self._set(SIGN_IN, "", self.paths[:1], 0)

    # --- sealing ----------------------------------------------------------------------------------------------

    def _set(self, name: str, value: str, paths: Sequence[str], seconds: int) -> Fields:
        return [
            ("Set-Cookie", set_cookie(self._prefix + name, value, path, seconds=seconds, secure=self.secure))
            for path in paths
        ]

    def _sealed(self, purpose: str, data: bytes) -> str:
        sealed = self.seal.sealed(data, purpose.encode())
        return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    def _unsealed(self, purpose: str, value: str) -> bytes | None:
        if len(value) > LARGEST_COOKIE or not value.isascii():
            return None
        try:
            sealed = base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True)
        except ValueError:
            return None
        return self.seal.unsealed(sealed, purpose.encode())
