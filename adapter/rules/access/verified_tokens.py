"""OAuth access tokens that were checked, what they say about their bearer, and the trust in who issued them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from adapter.rules.access.principals import token_principal
from adapter.rules.access.token_claims import is_bounded, moment, premature, scopes_of, texts, untimely


def digest_of(token: str) -> bytes:
    """The key of a token in caches, which hold no tokens: 32 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


class VerifiedToken(NamedTuple):
    """An access token of a trusted issuer (RFC 9068, or RFC 7662 for an opaque one), its signature and times checked.

    Its audience is not checked: that depends on the resource which is asked for. ``principal`` names issuer and
    person. ``audiences`` are those of the token; ``audience`` is the one that the settings demand of its issuer
    instead of the resource's URL. ``required_scopes`` are demanded of every token of its issuer. ``expires`` is in Unix
    seconds, with the leeway already added.
    """

    principal: str
    audiences: frozenset[str]
    scopes: frozenset[str]
    claims: Mapping[str, Any]
    expires: float
    audience: str | None = None
    required_scopes: tuple[str, ...] = ()


# --- trust in an issuer ----------------------------------------------------------------------------------------


LONGEST_PRINCIPAL = 1024
"""Characters of the claim that names a principal."""

MOST_NAMES = 512
"""Audiences and scopes of a token, each."""

LEEWAY = 30.0
"""Seconds by which the clocks of issuer and adapter may differ, unless the settings say so."""

TOKEN_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""Types in the header of an access token, in lower case (RFC 9068 §2.1, and what issuers wrote before it).

An ID token has the same type as those; its audience tells it apart.
"""

_OTHER_USES = frozenset(("id", "id_token", "refresh", "refresh_token", "offline", "logout"))
"""Values of ``token_use`` and ``typ``, by which some issuers mark tokens that are not for resources."""


class IssuerTrust(NamedTuple):
    """An issuer as the settings trust it.

    ``audience`` is what its tokens must be for, None for the resource that is asked for. ``principal_claim`` names
    the person. ``leeway`` is in seconds.
    """

    issuer: str
    audience: str | None = None
    algorithms: frozenset[str] = frozenset(("RS256", "ES256"))
    principal_claim: str = "sub"
    required_scopes: tuple[str, ...] = ()
    leeway: float = LEEWAY

    def introspected(self, answer: Mapping[str, Any], now: float, longest: float) -> VerifiedToken:
        """The token that an introspection endpoint gave ``answer`` about (RFC 7662 §2.2).

        Of what it may leave out, the issuer is this one, and it is good for ``longest`` seconds.
        """
        if answer.get("active") is not True:
            raise ValueError("the token is not active")
        if answer.get("iss", self.issuer) != self.issuer:
            raise ValueError("the token is of another issuer")
        if answer.get("exp") is not None:
            why = untimely(answer, now, self.leeway)
            expires = (moment(answer["exp"]) or 0.0) + self.leeway
        else:
            why, expires = premature(answer, now, self.leeway), now + longest
        if why is not None:
            raise ValueError(why)
        return self.vouched(answer, expires)

    def token(self, claims: Mapping[str, Any], now: float) -> VerifiedToken:
        """The token with these claims of a JWT, whose signature is good, at ``now`` (Unix seconds).

        Raises ValueError with a sentence about "the token", as the other methods do.
        """
        if claims.get("iss") != self.issuer:
            raise ValueError("the token is of another issuer")
        if (why := untimely(claims, now, self.leeway)) is not None:
            raise ValueError(why)
        return self.vouched(claims, (moment(claims.get("exp")) or 0.0) + self.leeway)

    def vouched(self, claims: Mapping[str, Any], expires: float) -> VerifiedToken:
        """The token with these claims, whose issuer and times are known to be right. ``expires`` is with the leeway."""
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
            token_principal(self.issuer, self._name(claims)),
            frozenset(audiences),
            frozenset(scopes),
            claims,
            expires,
            self.audience,
            self.required_scopes,
        )

    def _name(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name:
            raise ValueError(f"the token lacks the claim {self.principal_claim}")
        if len(name) > LONGEST_PRINCIPAL:
            raise ValueError(f"the token's claim {self.principal_claim} is too long")
        return name


def _is_other_use(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in _OTHER_USES
