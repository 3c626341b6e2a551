"""The way of a person's browser: from the link, by the authorization server, back to the grant."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from adapter.errors import AdapterError, AuthorizationFailed, StoreUnavailable
from adapter.oauth.grants.grant_store import VALID, BrowserState, GrantLink, GrantLinks
from adapter.oauth.grants.issuer_finder import GrantSource, IssuerFinder
from adapter.oauth.grants.renewal import GrantRenewal, renewed
from adapter.oauth.upstream_credentials import proof_of, request_tokens
from adapter.rules.access.grants import (
    LONGEST_TOKEN,
    Grant,
    GrantRefused,
    Tokens,
    authorization_url,
    code_exchange,
    code_request,
    issuer_agrees,
)
from adapter.rules.access.principals import digest

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between attempts to write a new grant while its person waits."""

Granted = Callable[[GrantLink], Awaitable[None]]
"""Hears of a link whose grant is there."""


class FlowFailed(Exception):
    """A browser cannot go on. ``str(error)`` is a sentence for the person, without anything of a stranger's."""


class Consent(NamedTuple):
    """The facts that a person is shown before anything begins."""

    link: GrantLink
    source: GrantSource


class GrantFlow:
    """The flow of one server. ``on_granted`` hears of each grant that was given."""

    def __init__(self, renewal: GrantRenewal, links: GrantLinks, finder: IssuerFinder) -> None:
        self.terms = renewal.terms
        self.clients = renewal.clients
        self.on_granted: Granted | None = None
        self._grants = renewal.grants
        self.clock = renewal.clock
        self._log = renewal.log
        self._links = links
        self._finder = finder

    async def consent(self, link_id: str) -> Consent:
        """Tell what the link asks for. Raises StoreUnavailable, and FlowFailed for a link that is no longer valid or
        where nobody can be asked.
        """
        link = await self._links.find(self.terms.server, link_id)
        if link is None:
            raise FlowFailed("This link is not valid, or no longer: call the tool again for a new one.")
        try:
            return Consent(link, await self._finder.find())
        except AuthorizationFailed as error:
            raise FlowFailed(str(error)) from error

    async def begin(self, consent: Consent, browser: str) -> str:
        """The URL at the authorization server to which this browser goes. ``browser`` is the secret in its cookie.

        Raises FlowFailed, StoreUnavailable.
        """
        issuer, resource, scopes = consent.source
        try:
            client = await self.clients.client_for(issuer)
        except (AdapterError, GrantRefused, ValueError) as error:
            self._log.warning(
                "no client at an authorization server", server=self.terms.server, why=str(error)
            )
            raise FlowFailed(
                "The authorization server does not accept the adapter as a client; its operator can set "
                "servers[].upstream.auth.client_id."
            ) from error
        now, verifier = self.clock(), secrets.token_urlsafe(48)
        grant = Grant(
            consent.link.principal,
            issuer.issuer,
            issuer.url("token_endpoint"),
            issuer.url_if_any("revocation_endpoint"),
            client.id,
            access="",
            refresh=None,
            scope=" ".join(scopes),
            resource=resource,
            obtained=now,
            renewed=now,
            expires=None,
        )
        names_issuer = issuer.says("authorization_response_iss_parameter_supported")
        state = await self._links.start(
            BrowserState(
                consent.link.id,
                self.terms.server,
                digest(browser),
                verifier,
                names_issuer,
                now + VALID,
                grant,
            )
        )
        parameters = code_request(client.id, self.terms.redirect, state, verifier, scopes, resource)
        if "offline_access" in scopes:
            # Without it servers of OpenID Connect leave the scope out (Core §11).
            parameters["prompt"] = "consent"
        return authorization_url(issuer.url("authorization_endpoint"), parameters)

    async def finish(self, parameters: Mapping[str, str], cookie_of: Callable[[str], str | None]) -> Grant:
        """Take the answer of the authorization server. ``cookie_of`` gives the browser's secret for a link's id.

        Raises FlowFailed, StoreUnavailable.
        """
        state = await self._taken(parameters, cookie_of)
        named = parameters.get("iss")
        if self.terms.knows_issuer and not issuer_agrees(
            named, state.grant.issuer, required=state.names_issuer
        ):
            raise FlowFailed(
                "The answer comes from another authorization server than the one that was asked."
            )
        if "error" in parameters:
            self._log.info("a grant was not given", server=self.terms.server)
            raise FlowFailed("The authorization server says that access was not granted.")
        code = parameters.get("code", "")
        if not code or len(code) > LONGEST_TOKEN:
            raise FlowFailed("The answer of the authorization server has no code.")
        tokens, now = await self._tokens(state, code), self.clock()
        grant = renewed(state.grant, tokens, now)._replace(obtained=now)
        await self._keep(grant)
        link = await self._links.close(state.link)
        if link is not None and self.on_granted is not None:
            await self.on_granted(link)
        return grant

    async def _keep(self, grant: Grant) -> None:
        """Write a grant, more than once where the store fails: its code is used up. Raises StoreUnavailable."""
        for pause in PAUSES:
            try:
                await self._grants.put(self.terms.server, grant)
            except StoreUnavailable:
                await asyncio.sleep(pause)
            else:
                return
        await self._grants.put(self.terms.server, grant)

    async def _taken(
        self, parameters: Mapping[str, str], cookie_of: Callable[[str], str | None]
    ) -> BrowserState:
        """The state of this browser, which nobody can use again."""
        found = await self._links.state_of(parameters.get("state", ""))
        if found is None or found[1].server != self.terms.server:
            raise FlowFailed(
                "This answer was used already, or came too late: call the tool again for a new link."
            )
        row, state = found
        secret = cookie_of(state.link)
        if secret is None or not hmac.compare_digest(digest(secret), state.browser):
            # It stays: whoever brings it here must not be able to end it for the browser that it belongs to.
            raise FlowFailed("This answer belongs to another browser: open the link in the browser you use.")
        if not await self._links.take(row):
            raise FlowFailed("This answer was used already: call the tool again for a new link.")
        return state

    async def _tokens(self, state: BrowserState, code: str) -> Tokens:
        grant = state.grant
        client = await self.clients.client_of(grant.issuer, grant.client)
        if client is None:
            raise FlowFailed("The adapter's client was registered anew meanwhile: open the link once more.")
        form = code_exchange(code, self.terms.redirect, state.verifier, grant.resource)
        try:
            return await request_tokens(self.clients.http, grant.token_endpoint, proof_of(client), form)
        except GrantRefused as refused:
            self._log.warning("a code was not exchanged", server=self.terms.server, error=refused.code)
            if refused.code == "invalid_client" and self.terms.auth.client_id is None:
                await self.clients.forget(grant.issuer, grant.client)
            raise FlowFailed(
                "The authorization server did not accept its own answer: try again."
            ) from refused
        except (AdapterError, ValueError) as error:
            self._log.warning("a code was not exchanged", server=self.terms.server, why=str(error))
            raise FlowFailed("The authorization server cannot be reached now: try again.") from error
