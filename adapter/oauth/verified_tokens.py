"""The verification of access tokens: each is looked at once, by the issuer that it names or by introspection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from adapter.errors import Unauthorized
from adapter.oauth.token_cache import TokenCache, Verification
from adapter.pipeline.signed_tokens import unchecked_claims
from adapter.rules.access.verified_tokens import VerifiedToken

LONGEST_TOKEN = 16 * 1024
"""Characters of a token that is looked at; the groups of a person may take most of them."""


class TokenCheck(Protocol):
    """One way to verify a token."""

    async def check(self, token: str) -> Verification:
        """Verify a token. Raises Unauthorized, and IssuerUnavailable."""


class VerifiedTokens(TokenCache):
    """Implements TokenVerifier by ``issuers``, each under its identifier, and by ``introspection`` of all other tokens.

    A token that names a trusted issuer is never introspected: its signature decides.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self.issuers: dict[str, TokenCheck] = {}
        self.introspection: TokenCheck | None = None

    def __repr__(self) -> str:
        return f"<VerifiedTokens of {len(self.issuers)} issuers: {super().__repr__()}>"

    async def verify(self, token: str) -> VerifiedToken:
        """See TokenVerifier. Raises IssuerUnavailable too, where nobody can tell now."""
        if (known := self.known(token)) is not None:
            return known
        if len(token) > LONGEST_TOKEN:
            raise Unauthorized(f"The access token has more than {LONGEST_TOKEN} characters.")
        verification = await self._check_of(token).check(token)
        self.keep(token, verification)
        return verification.token

    def _check_of(self, token: str) -> TokenCheck:
        claims = unchecked_claims(token)
        named = claims.get("iss") if claims is not None else None
        check = self.issuers.get(named) if isinstance(named, str) else None
        if check is None:
            check = self.introspection
        if check is None:
            what = "is not a valid JWT" if claims is None else "is of another issuer"
            raise Unauthorized(f"The access token {what}.")
        return check
