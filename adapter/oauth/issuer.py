"""An issuer of signed access tokens: its keys, and the check of a token with them (RFC 9068 §4).

The verification of access tokens: each is looked at once, by the issuer that it names or by introspection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from adapter.errors import AdapterError, IssuerUnavailable, Unauthorized
from adapter.oauth.discovery import Refreshed
from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.jwt import BadToken, Signatures, unchecked_claims
from adapter.pipeline.key_set import Fetch, KeySet, SigningKey
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.principals import token_principal
from adapter.rules.access.token_claims import (
    VerifiedToken,
    digest_of,
    is_bounded,
    moment,
    scopes_of,
    texts,
    untimely,
    values_in,
)
from adapter.rules.last_used import LastUsed, Weight
from adapter.settings.auth import OAuthIssuer
from adapter.upstream.outgoing import IssuerHttp

LONGEST_TOKEN = 16 * 1024
"""Characters of a token that is looked at; the groups of a person may take most of them."""

MOST_TOKENS = 10_000
MOST_BYTES = 64 << 20
"""Of the texts out of which all claims that are kept were read, and of the values in them."""

VALUE_BYTES = 100
"""Bytes of one value, about, whatever the text is that it was read from."""


class Verification(NamedTuple):
    """A token that holds ``until`` (Unix seconds) without another look at its issuer; never longer than it is valid.

    ``key`` has signed it, None where its issuer was asked about it. ``size`` are the bytes out of which it was read,
    and of one that is kept ``since`` (Unix seconds) all that it takes.
    """

    token: VerifiedToken
    until: float
    size: int
    key: SigningKey | None = None
    since: float = 0.0


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
        self._kept = LastUsed[bytes, Verification](
            MOST_TOKENS, MOST_BYTES, lambda kept: Weight(id(kept), kept.size)
        )

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
        is_withdrawn = found.key is not None and found.key.withdrawn
        if is_withdrawn or not found.since <= self._clock() < found.until:
            self._kept.drop(digest)
            return None
        return found.token

    def keep(self, token: str, verification: Verification) -> None:
        """Remember a token, and forget the one that was used longest ago where there are too many."""
        now = self._clock()
        if verification.until > now:
            size = verification.size + VALUE_BYTES * values_in(verification.token.claims)
            self._kept.put(digest_of(token), verification._replace(since=now, size=size))


def refused(why: ValueError) -> Unauthorized:
    """The failure for a sentence about "the token"."""
    return Unauthorized(f"The access {str(why).removeprefix('the ')}.")


LONGEST_PRINCIPAL = 1024
"""Characters of the claim that names a principal."""

MOST_NAMES = 512
"""Audiences and scopes of a token, each."""

TOKEN_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""Types in the header of an access token, in lower case (RFC 9068 §2.1, and what issuers wrote before it).

An ID token has the same type as those; its audience tells it apart.
"""

_OTHER_USES = frozenset(("id", "id_token", "refresh", "refresh_token", "offline", "logout"))
"""Values of ``token_use`` and ``typ``, by which some issuers mark tokens that are not for resources."""


class IssuerTrust(NamedTuple):
    """An issuer as the settings trust it: when the claims of a token that it vouches for let somebody in, and as whom.

    ``leeway`` is in seconds, by which the clocks of issuer and adapter may differ.
    """

    entry: OAuthIssuer
    leeway: float

    def introspected(self, answer: Mapping[str, Any], now: float, longest: float) -> VerifiedToken:
        """The token that an introspection endpoint gave ``answer`` about (RFC 7662 §2.2).

        Of what it may leave out, the issuer is this one, and it is good for ``longest`` seconds.
        """
        if answer.get("active") is not True:
            raise ValueError("the token is not active")
        usual = {"iss": self.entry.issuer, "exp": now + longest - self.leeway}
        unsaid = {"exp"} if answer.get("exp") is None else set()
        return self.token({**usual, **{name: answer[name] for name in answer.keys() - unsaid}}, now)

    def token(self, claims: Mapping[str, Any], now: float) -> VerifiedToken:
        """The token with these claims, which its issuer has vouched for, at ``now`` (Unix seconds).

        Raises ValueError with a sentence about "the token", as the other methods do.
        """
        if claims.get("iss") != self.entry.issuer:
            raise ValueError("the token is of another issuer")
        if (why := untimely(claims, now, self.leeway)) is not None:
            raise ValueError(why)
        if not is_bounded(claims):
            raise ValueError("the token has too many claims")
        if any(_is_other_use(claims.get(name)) for name in ("token_use", "typ")):
            raise ValueError("the token is no access token")
        # RFC 9449 §6.1, RFC 8705 §3: whoever stole it lacks the key, and nobody asks for that here.
        if claims.get("cnf") is not None:
            raise ValueError("the token is bound to a key, which is not supported here")
        audiences, scopes = texts(claims.get("aud")), scopes_of(claims)
        if max(len(audiences), len(scopes)) > MOST_NAMES:
            raise ValueError("the token has too many audiences or scopes")
        return VerifiedToken(
            token_principal(self.entry.issuer, self._name(claims)),
            frozenset(audiences),
            frozenset(scopes),
            claims,
            (moment(claims.get("exp")) or 0.0) + self.leeway,
            self.entry.audience,
            tuple(self.entry.required_scopes),
        )

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.entry.principal_claim)
        if not isinstance(name, str) or not name:
            raise ValueError(f"the token lacks the claim {self.entry.principal_claim}")
        if len(name) > LONGEST_PRINCIPAL:
            raise ValueError(f"the token's claim {self.entry.principal_claim} is too long")
        return name


def _is_other_use(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _OTHER_USES


class Issuer:
    """Checks the JWTs of one issuer. ``clock`` gives Unix seconds."""

    def __init__(self, trust: IssuerTrust, keys: KeySet, clock: Callable[[], float] = time.time) -> None:
        self._trust = trust
        self._keys = keys
        self._clock = clock
        self._signatures = Signatures(keys, frozenset(trust.entry.algorithms))

    def __repr__(self) -> str:
        return f"<Issuer {self._trust.entry.issuer!r}: {self._keys!r}>"

    async def check(self, token: str) -> Verification:
        """Verify a token. Raises Unauthorized, and IssuerUnavailable where there are no keys."""
        try:
            header, key, claims = await self._signatures.check(token)
            if (header.type and header.type.lower()) not in TOKEN_TYPES:
                raise BadToken("the token is no access token")
            # The clock after the keys, which may have taken seconds.
            now = self._clock()
            verified = self._trust.token(claims, now)
        except ValueError as why:
            raise refused(why) from None
        except AuthRefused as unavailable:
            raise IssuerUnavailable(retry_after=unavailable.retry_after) from None
        until = min(verified.expires, now + self._keys.unchanged_for())
        return Verification(verified, until, len(token), key)


def fetch_keys(http: IssuerHttp, metadata: Refreshed[ServerMetadata], jwks_url: str | None) -> Fetch:
    """Return the function that gets the key set of an issuer: at ``jwks_url``, or where its metadata says."""

    async def fetch(_: str) -> bytes:
        url = jwks_url or (await metadata.get()).url("jwks_uri")
        try:
            return await http.document(url)
        except AdapterError:
            # It may have moved.
            metadata.outdate()
            raise

    return fetch
