"""An issuer of signed access tokens: its keys, and the check of a token with them (RFC 9068 §4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from adapter.errors import AdapterError, IssuerUnavailable, Unauthorized
from adapter.oauth.discovery import Refreshed
from adapter.oauth.verified_tokens import Verification
from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.jwt import BadToken, Signatures
from adapter.pipeline.key_set import Fetch, KeySet
from adapter.rules.access.authorization_servers import ServerMetadata
from adapter.rules.access.principals import token_principal
from adapter.rules.access.token_claims import (
    VerifiedToken,
    is_bounded,
    moment,
    scopes_of,
    texts,
    untimely,
)
from adapter.settings.auth import OAuthIssuer
from adapter.upstream.outgoing import IssuerHttp


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
