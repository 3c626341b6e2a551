"""The routes of grants: ``/authorize/{server}/{link}``, the callback of each server, and its client's document."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from adapter.edge import browser_pages
from adapter.edge.http.request import Branch, Fields, Names, Request
from adapter.errors import AdapterError, MessageTooLong, NotFound
from adapter.oauth.grants.flow import Consent, FlowFailed, GrantFlow
from adapter.oauth.grants.grant_store import VALID
from adapter.oauth.grants.issuer_finder import PREFIX
from adapter.rules.access.browser_sessions import cookie_of, origin_of, set_cookie
from adapter.rules.access.host_and_origin_check import NOSNIFF
from adapter.rules.access.principals import ANONYMOUS, name_of
from adapter.rules.access.resources import ANY
from adapter.wire.envelope import dump
from adapter.wire.signed_urls import parameters

if TYPE_CHECKING:
    from adapter.edge.console.sign_in import SignInRoutes
    from adapter.edge.http.access import Guard

LARGEST_FORM = 16 << 10
"""Bytes of a form: two short fields."""


@dataclass(eq=False, repr=False)
class GrantRoutes:
    """Serves the pages of all servers.

    ``browsers`` tells who has signed in, ``tokens`` whose token it is that a person types in its place; None of both
    where callers are not told apart, so that a grant is everybody's.
    """

    flows: Mapping[str, GrantFlow]
    browsers: SignInRoutes | None = None
    tokens: Guard | None = None

    def branch(self) -> Branch:
        """The branch of all pages. Only the Host is checked: a browser comes from another origin, and says so."""
        return Branch(PREFIX, 2, ("GET", "HEAD", "POST"), (), self._serve, public=True)

    async def _serve(self, request: Request, names: Names) -> None:
        server, page = names
        flow = self.flows.get(server)
        if flow is None:
            raise NotFound()
        if page == "client.json":
            _send_document(request, flow)
            return
        try:
            if page == "callback":
                await self._callback(request, flow)
            elif request.method == "POST":
                await self._begin(request, flow, page)
            else:
                await self._show(request, flow, page)
        except FlowFailed as error:
            _send(request, 400, browser_pages.failed_page(str(error)))
        except AdapterError as error:
            _send(request, error.http, browser_pages.failed_page(str(error)))

    # --- the first page ---------------------------------------------------------------------------------------

    async def _show(self, request: Request, flow: GrantFlow, link: str) -> None:
        consent = await flow.consent(link)
        signs_in = self._signs_in(consent)
        if signs_in and self.browsers is not None:
            signed_in = await self.browsers.principal(request)
            if signed_in is None:
                target = self.browsers.sign_in(f"{PREFIX}/{flow.terms.server}/{link}")
                _send(request, 303, b"", ("Location", target))
                return
            _require_same(signed_in, consent)
        browser = _cookie(request, _cookie_name(flow, link)) or secrets.token_urlsafe(32)
        body = browser_pages.consent_page(
            flow.terms.server,
            _name(consent.link.principal),
            _host(consent),
            consent.source.scopes,
            _confirmation(browser, link),
            asks_token=not signs_in and self.tokens is not None,
        )
        _send(request, 200, body, ("Set-Cookie", _set_cookie(flow, link, browser)))

    async def _begin(self, request: Request, flow: GrantFlow, link: str) -> None:
        origin = request.headers.get("Origin")
        if origin is not None and origin != origin_of(flow.terms.base):
            raise FlowFailed("This form was sent by another page: open the link once more.")
        form = parameters((await _form(request)).decode("utf-8", "replace"))
        browser = _cookie(request, _cookie_name(flow, link))
        if browser is None or not hmac.compare_digest(
            _confirmation(browser, link).encode(), form.get("confirm", "").encode("utf-8", "replace")
        ):
            raise FlowFailed(
                "This browser keeps no cookies of this page, or the page is too old: open the link again."
            )
        consent = await flow.consent(link)
        await self._identify(request, consent, form)
        url = await flow.begin(consent, browser)
        _send(request, 200, browser_pages.leaving_page(url, _host(consent)))

    async def _identify(self, request: Request, consent: Consent, form: Mapping[str, str]) -> None:
        """Raise FlowFailed unless the person is the one for whom the link was made.

        MCP 2025-11-25, "Elicitation", "Phishing": else one could have another one's account.
        """
        if self.browsers is not None and self._signs_in(consent):
            _require_same(await self.browsers.principal(request), consent)
        elif self.tokens is not None:
            _require_same(await _principal_of(form.get("token", ""), self.tokens), consent)

    def _signs_in(self, consent: Consent) -> bool:
        """Tell whether the person can show by signing in that the grant is theirs.

        Those with a static token cannot: theirs is no name of an issuer, which stands behind an ``@``.
        """
        return self.browsers is not None and "@http" in name_of(consent.link.principal)

    # --- the way back -----------------------------------------------------------------------------------------

    async def _callback(self, request: Request, flow: GrantFlow) -> None:
        if request.method != "GET":
            raise FlowFailed("The authorization server has to answer by a redirect.")
        query = parameters(request.target.partition("?")[2])
        used: list[str] = []

        def cookie_of(link: str) -> str | None:
            used.append(link)
            return _cookie(request, _cookie_name(flow, link))

        grant = await flow.finish(query, cookie_of)
        ended = [("Set-Cookie", _set_cookie(flow, link, "", age=0)) for link in used]
        _send(request, 200, browser_pages.granted_page(flow.terms.server, _name(grant.principal)), *ended)


async def _principal_of(token: str, guard: Guard) -> str | None:
    """The principal of a token that callers of this adapter send; None where it is nobody's."""
    fields = Fields([("Authorization", f"Bearer {token}")])
    try:
        await guard.verify(fields)
        return guard.principal_of(fields, ANY)
    except AdapterError:
        return None


def _require_same(principal: str | None, consent: Consent) -> None:
    if principal is None or not hmac.compare_digest(
        principal.encode("utf-8", "surrogatepass"), consent.link.principal.encode("utf-8", "surrogatepass")
    ):
        raise FlowFailed(
            "You are not the one for whom this link was made, so no access was given: "
            "use the server yourself, and open the link that you get."
        )


def _name(principal: str) -> str | None:
    return None if principal == ANONYMOUS else name_of(principal)


# --- answers ----------------------------------------------------------------------------------------------------


def _send(request: Request, status: int, body: bytes, *more: tuple[str, str]) -> None:
    request.reply.send(status, [*browser_pages.FIELDS, *more], body)


def _send_document(request: Request, flow: GrantFlow) -> None:
    """The client id metadata document, which authorization servers fetch."""
    document = {"client_id": flow.terms.document, **flow.clients.metadata()}
    fields = [("Content-Type", "application/json"), ("Cache-Control", "max-age=300"), NOSNIFF]
    request.reply.send(200, fields, dump(document))


async def _form(request: Request) -> bytes:
    return await request.body.whole(
        LARGEST_FORM, lambda: MessageTooLong(f"The form is larger than {LARGEST_FORM} bytes.")
    )


def _host(consent: Consent) -> str:
    return urlsplit(consent.source.issuer.url("authorization_endpoint")).netloc


# --- the browser's secret ---------------------------------------------------------------------------------------


def _cookie_name(flow: GrantFlow, link: str) -> str:
    """A cookie of its own for each link, so that two of them may be open at once."""
    name = f"grant-{link[:32]}"
    # The prefix keeps neighbours in the same domain from setting it (RFC 6265bis §4.1.3.2).
    return f"__Host-{name}" if flow.terms.base.startswith("https://") else name


def _set_cookie(flow: GrantFlow, link: str, value: str, age: float = 2 * VALID) -> str:
    secure = flow.terms.base.startswith("https://")
    return set_cookie(_cookie_name(flow, link), value, "/", seconds=int(age), secure=secure)


def _cookie(request: Request, name: str) -> str | None:
    lines = (line for field, line in request.headers.pairs if field.lower() == "cookie")
    return cookie_of("; ".join(lines), name) or None


def _confirmation(browser: str, link: str) -> str:
    """The form's word for the cookie: another page can make a browser send the cookie, but cannot read it."""
    return hmac.digest(browser.encode("utf-8", "surrogatepass"), link.encode(), "sha256").hex()
