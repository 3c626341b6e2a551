"""The verification of access tokens: each is looked at once, by the issuer that it names or by introspection."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from adapter.errors import Unauthorized
from adapter.pipeline.jwt import unchecked_claims
from adapter.pipeline.key_set import SigningKey
from adapter.rules.access.token_claims import VerifiedToken, digest_of, values_in

LONGEST_TOKEN = 16 * 1024
"""Characters of a token that is looked at; the groups of a person may take most of them."""

MOST_TOKENS = 10_000
MOST_BYTES = 16 << 20
"""Of the texts out of which all claims that are kept were read; the claims take several times as much."""

MOST_VALUES = 1 << 19
"""Values in the claims of all of them, of some hundred bytes each, whatever the texts are that they were read from."""


class Verification(NamedTuple):
    """A token that holds ``until`` (Unix seconds) without another look at its issuer; never longer than it is valid.

    ``key`` has signed it, None where its issuer was asked about it. ``size`` are the bytes out of which it was read.
    """

    token: VerifiedToken
    until: float
    size: int
    key: SigningKey | None = None


class _Kept(NamedTuple):
    """A verification that is kept ``since`` (Unix seconds), and the number of values in its claims."""

    verification: Verification
    since: float
    values: int


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
        self._entries: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = self._values = 0

    def __repr__(self) -> str:
        return f"<VerifiedTokens of {len(self.issuers)} issuers: {len(self)} tokens>"

    def __len__(self) -> int:
        return len(self._entries)

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
        found = self._entries.get(digest)
        if found is None:
            return None
        verification = found.verification
        if not found.since <= self._clock() < verification.until:
            self._drop(digest)
            return None
        self._entries.move_to_end(digest)
        return verification.token

    def keep(self, token: str, verification: Verification) -> None:
        """Remember a token, and forget the one that was used longest ago where there are too many."""
        now = self._clock()
        if verification.until <= now:
            return
        digest, values = digest_of(token), values_in(verification.token.claims)
        self._drop(digest)
        self._entries[digest] = _Kept(verification, now, values)
        self._size += verification.size
        self._values += values
        while len(self._entries) > MOST_TOKENS or self._size > MOST_BYTES or self._values > MOST_VALUES:
            self._drop(next(iter(self._entries)))

    def withdraw(self, keys: Collection[SigningKey]) -> None:
        """Forget the tokens that these keys have signed."""
        gone = set(keys)
        for digest in [each for each, found in self._entries.items() if found.verification.key in gone]:
            self._drop(digest)

    def _drop(self, digest: bytes) -> None:
        if (dropped := self._entries.pop(digest, None)) is not None:
            self._size -= dropped.verification.size
            self._values -= dropped.values
