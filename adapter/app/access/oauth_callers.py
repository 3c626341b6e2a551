"""Callers with OAuth: the verification of access tokens, out of ``core.auth.oauth``, and the sign-in of people with
their browser, out of ``console.oauth``. Import it late: it loads cryptography.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from adapter.app.base import Base
from adapter.app.state import sealed_rows
from adapter.edge.console.sign_in import SignInRoutes
from adapter.edge.http.access import BrowserIdentities, Guard
from adapter.oauth.discovery import issuer_metadata
from adapter.oauth.grants.issuer_finder import PREFIX as GRANTS
from adapter.oauth.introspection import OpaqueTokens
from adapter.oauth.issuer import Issuer, IssuerTrust, VerifiedTokens, fetch_keys
from adapter.oauth.port import TokenVerifier
from adapter.oauth.sign_in import BrowserSessions, SignIn, SignInConfig
from adapter.pipeline.key_set import KeySet
from adapter.relay.cleanup import CleanupTask
from adapter.rules.access.browser_sessions import RoleRules
from adapter.rules.access.resources import CONSOLE, resources_below
from adapter.settings.auth import OAuth
from adapter.settings.pipeline import ConsoleOAuth
from adapter.settings.root import Settings
from adapter.upstream.outgoing import IssuerHttp, token_http


class Clocks(NamedTuple):
    """``now`` gives Unix seconds, ``elapsed`` seconds that never go back."""

    now: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic


USUAL_CLOCKS = Clocks()


def build_verifier(
    oauth: OAuth, logger: FilteringBoundLogger, clocks: Clocks = USUAL_CLOCKS
) -> TokenVerifier:
    """Build the verifier of the tokens of all issuers. None of them is asked yet."""
    http, verifier = IssuerHttp(), VerifiedTokens(clocks.now)
    for entry in oauth.issuers:
        fetch = fetch_keys(http, issuer_metadata(http, entry.issuer, clocks.elapsed), entry.jwks_url)
        log = logger.bind(issuer=entry.issuer)
        keys = KeySet(entry.issuer, fetch, log, clocks.elapsed)
        verifier.issuers[entry.issuer] = Issuer(IssuerTrust(entry, oauth.leeway_seconds), keys, clocks.now)
    if (asked := oauth.introspection) is not None:
        trust = IssuerTrust(oauth.issuers[0], oauth.leeway_seconds)
        log = logger.bind(issuer=trust.entry.issuer)
        verifier.introspection = OpaqueTokens(asked, trust, http, log, clocks.now)
    return verifier


# --- sign-in ----------------------------------------------------------------------------------------------------------

SECRET = "browser sessions"  # noqa: S105 (the name of a secret)
"""The name of the store's own secret that seals cookies, so that each replica reads those of the others."""


class BrowserSignIn(NamedTuple):
    """``guard`` knows people by their cookie too, for pages; ``routes`` sign them in."""

    guard: Guard
    routes: SignInRoutes
    roles: RoleRules


def build_browser_sign_in(
    app: Base, console: ConsoleOAuth, guard: Guard, verifier: TokenVerifier
) -> BrowserSignIn:
    """Build the sign-in of ``console``, which is ``console.oauth``. No issuer is asked yet."""
    settings, store = app.settings, app.store
    base = settings.core.public_base_url
    assert base is not None, "settings refuse a sign-in without it"
    base = base.rstrip("/")
    prefix, roles = urlsplit(base).path, role_terms(console)
    sessions = BrowserSessions(
        sealed_rows(settings, store, SECRET),
        [prefix + path for path in (settings.console.path, GRANTS)],
        secure=base.startswith("https://"),
    )
    terms = _terms(settings, console, base)
    metadata = issuer_metadata(IssuerHttp(), terms.issuer.issuer)
    flow = SignIn(terms, metadata, token_http(), verifier, store)
    routes = SignInRoutes(settings.console.path, base, guard, flow, sessions)
    app.tasks.append(CleanupTask("sign-ins", flow.tidy))
    app.rereads.append(sessions.open)
    known = guard.with_browsers(BrowserIdentities(sessions, base, roles))
    return BrowserSignIn(known, routes, roles)


def role_terms(console: ConsoleOAuth) -> RoleRules:
    """The claims that make operators and viewers."""
    return RoleRules(console.operator_claims, console.viewer_claims)


def _terms(settings: Settings, console: ConsoleOAuth, base: str) -> SignInConfig:
    oauth = settings.core.auth.oauth
    assert oauth is not None, "settings refuse a sign-in without it"
    issuer, path = oauth.issuers[0], settings.console.path
    scopes = tuple(dict.fromkeys((*issuer.required_scopes, *console.scopes)))
    return SignInConfig(
        console,
        issuer,
        f"{base}{path}/-/signed-in",
        resources_below(base, {CONSOLE: path}, scopes)[CONSOLE],
        frozenset((*console.operator_claims, *console.viewer_claims, *_judged(settings))),
    )


def _judged(settings: Settings) -> Iterator[str]:
    """The claims by which ``servers[].access`` judges callers."""
    for server in settings.servers:
        for entry in server.access or ():
            yield from entry.claims or ()
