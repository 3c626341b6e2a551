"""The verification of access tokens: each is looked at once, by the issuer that it names or by introspection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from adapter.errors import Unauthorized
from adapter.pipeline.jwt import unchecked_claims
from adapter.pipeline.key_set import SigningKey
from adapter.rules.access.token_claims import VerifiedToken, digest_of, values_in
from adapter.rules.last_used import LastUsed, Weight

LONGEST_TOKEN = 16 * 1024
"""Characters of a token that is looked at; the groups of a person may take most of them."""

MOST_TOKENS = 10_000
MOST_BYTES = 64 << 20
"""Of the texts out of which all claims that are kept were read, and of the values in them."""

VALUE_BYTES = 100
"""Bytes of one value, about, whatever the text is that it was read from."""


class Verification(NamedTuple):
    """A token that holds ``until`` (Unix seconds) without another look at its issuer; never longer than it is valid.

    ``key`` has signed it, None where its issuer was asked about it. ``size`` are the bytes out of which it was read.
    """

    token: VerifiedToken
    until: float
    size: int
    key: SigningKey | None = None


class _Kept(NamedTuple):
    """A verification that is kept ``since`` (Unix seconds), and its bytes."""

    verification: Verification
    since: float
    size: int

    @property
    def weight(self) -> Weight:
        """Its bytes, which it shares with no other."""
        return Weight(id(self), self.size)


class TokenCheck(Protocol):
    """One way to verify a token."""

    async def check(self, token: str) -> Verification:
        """Verify a token. Raises Unauthorized, and IssuerUnavailable."""


class VerifiedTokens:
    """Implements TokenVerifier by ``issuers``, each under its identifier, and by ``introspection`` of all other tokens.

    A token that names a trusted issuer is never introspected: its signature decides. The tokens that were used last are
    kept by their digests. ``clock`` gives Unix seconds; where it was set back to before a token came, nobody knows how
    long the token has been kept, so it is dropped.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.issuers: dict[str, TokenCheck] = {}
        self.introspection: TokenCheck | None = None
        self._clock = clock
        self._kept = LastUsed[bytes, _Kept](MOST_TOKENS, MOST_BYTES, lambda kept: kept.weight)

    def __repr__(self) -> str:
        return f"<VerifiedTokens of {len(self.issuers)} issuers: {len(self)} tokens>"

    def __len__(self) -> int:
        return len(self._kept)

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

    # --- tokens that were verified ------------------------------------------------------------------------------

    def known(self, token: str) -> VerifiedToken | None:
        """See TokenVerifier."""
        return self.recall(digest_of(token))

    def recall(self, digest: bytes) -> VerifiedToken | None:
        """See TokenVerifier."""
        found = self._kept.get(digest)
        if found is None:
            return None
        verification, key = found.verification, found.verification.key
        is_withdrawn = key is not None and key.withdrawn
        if is_withdrawn or not found.since <= self._clock() < verification.until:
            self._kept.drop(digest)
            return None
        return verification.token

    def keep(self, token: str, verification: Verification) -> None:
        """Remember a token, and forget the one that was used longest ago where there are too many."""
        now = self._clock()
        if verification.until > now:
            size = verification.size + VALUE_BYTES * values_in(verification.token.claims)
            self._kept.put(digest_of(token), _Kept(verification, now, size))
