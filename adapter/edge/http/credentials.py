"""Credentials in the heads of requests: OAuth access tokens, verified before a request is judged, and judged for each
resource; and the cookie of a person who signed in with their browser, in place of a token.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from structlog.typing import FilteringBoundLogger

from adapter.edge.http.request import Fields
from adapter.errors import ConsoleRefused, InsufficientScope, Unauthorized
from adapter.oauth.port import TokenVerifier
from adapter.rules.access.browser_sessions import TAB_FIELD, RoleRules, is_own_page
from adapter.rules.access.principals import Identity
from adapter.rules.access.resources import ProtectedResource, challenge, refusal_of
from adapter.rules.access.token_claims import VerifiedToken, digest_of
from adapter.rules.text.unicode import shown

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
