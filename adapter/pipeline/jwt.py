"""Callers that bring a signed token of an issuer (RFC 7519), checked by signature, time, audience and scopes."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import jwt
from jwt.exceptions import InvalidSignatureError, PyJWTError

from adapter.errors import BadJson
from adapter.pipeline.call import AuthRequest
from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.key_set import OF_PUBLIC_KEYS, Keys, OneKey, SigningKey, of_pem, of_secret
from adapter.rules.access.principals import bearer
from adapter.rules.access.token_claims import LEEWAY, AuthPolicy, ClaimRules
from adapter.wire.envelope import parse

_KEYS = ("jwks_url", "secret", "public_key")
_MEMBERS = (*_KEYS, "issuer", "audience", "scopes", "leeway", "required_claims", "algorithms")


@dataclass(eq=False)
class Jwt:
    """Lets a caller in that sends a token which one of ``keys`` has signed by one of ``algorithms``, and whose claims
    pass ``rules``. ``clock`` gives Unix seconds. The identity is the mapping of the claims.
    """

    name = "jwt"

    keys: Keys
    rules: ClaimRules
    algorithms: frozenset[str]
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._signatures = Signatures(self.keys, self.algorithms)

    def __repr__(self) -> str:
        return f"<Jwt by {', '.join(sorted(self.algorithms))}>"

    @classmethod
    def of(
        cls,
        policy: Mapping[str, Any],
        key_set: Callable[[str], Keys],
        clock: Callable[[], float] = time.time,
    ) -> Jwt:
        """The plugin of a policy; ``key_set`` gives the keys at a URL.

        Exactly one of ``jwks_url``, ``secret`` (HMAC) and ``public_key`` (PEM); ``issuer`` and ``audience`` (one or a
        list of which one has to match); ``scopes`` (as one text or a list, all demanded); ``required_claims``;
        ``leeway`` in seconds; ``algorithms``, some of those that the key is for. Raises ValueError.
        """
        read = AuthPolicy(cls.name, policy, _MEMBERS)
        keys, fitting = _keys_of(read, key_set)
        algorithms = frozenset(read.texts("algorithms")) or fitting
        if unfit := sorted(algorithms - fitting):
            raise read.refused(
                f"policy.algorithms: {unfit[0]} does not fit this key, use {', '.join(sorted(fitting))}"
            )
        rules = ClaimRules(
            issuers=read.texts("issuer"),
            audiences=read.texts("audience"),
            scopes=tuple(scope for text in read.texts("scopes") for scope in text.split()),
            required=read.texts("required_claims"),
            leeway=read.seconds("leeway", LEEWAY),
        )
        return cls(keys, rules, algorithms, clock)

    async def __call__(self, request: AuthRequest) -> dict[str, Any]:
        """See Authenticator."""
        token = bearer(request["headers"].get("authorization"))
        if token is None:
            raise AuthRefused("unauthorized: a Bearer token is required")
        try:
            claims = (await self._signatures.check(token)).claims
        except BadToken as why:
            raise AuthRefused(f"unauthorized: {why}") from None
        if (refusal := self.rules.refusal(claims, self.clock())) is not None:
            raise AuthRefused(refusal)
        return claims


def _keys_of(read: AuthPolicy, key_set: Callable[[str], Keys]) -> tuple[Keys, frozenset[str]]:
    """The keys of a policy, and the algorithms they are for."""
    given = [name for name in _KEYS if read.text(name) is not None]
    if len(given) != 1:
        raise read.refused(f"policy must have exactly one of {', '.join(_KEYS)}")
    (name,) = given
    value = read.text(name) or ""
    if name == "jwks_url":
        if urlsplit(value).scheme not in ("https", "http") or not urlsplit(value).hostname:
            raise read.refused("policy.jwks_url must be a URL that begins with https:// or http://")
        return key_set(value), frozenset(OF_PUBLIC_KEYS)
    try:
        key = of_secret(value) if name == "secret" else of_pem(value)
    except ValueError as error:
        raise read.refused(f"policy.{name} {error}") from None
    return OneKey(key), key.algorithms


# --- signatures ------------------------------------------------------------------------------------------------


class BadToken(ValueError):
    """A token that does not hold. ``str`` is a sentence about "the token" that quotes nothing of it."""


class TokenHeader(NamedTuple):
    """The members of a header that count.

    Members that offer a key (``jwk``, ``jku``, ``x5c``, ``x5u``) are ignored: keys come from the settings alone.
    """

    kid: str | None
    algorithm: str
    type: str | None


class SignedToken(NamedTuple):
    """A token whose signature was good: by which key, and what it says."""

    header: TokenHeader
    key: SigningKey
    claims: dict[str, Any]


class Signatures:
    """Checks signatures of ``keys`` by ``algorithms``: the choice is ours, never the token's (RFC 8725 §3.1)."""

    def __init__(self, keys: Keys, algorithms: frozenset[str]) -> None:
        self._keys = keys
        self._algorithms = algorithms
        # Signatures only: what claims have to say is for rules, and by our clock.
        self._checker = jwt.PyJWS(algorithms=sorted(algorithms))

    def __repr__(self) -> str:
        return f"<Signatures by {', '.join(sorted(self._algorithms))}>"

    async def check(self, token: str) -> SignedToken:
        """Check a token's signature. Raises BadToken, and AuthRefused where there are no keys to be had."""
        header = self.header(token)
        key = await self._keys.find(header.kid, header.algorithm)
        if key is None:
            raise BadToken("the token is signed with an unknown key")
        return SignedToken(header, key, self.claims(token, header.algorithm, key))

    def header(self, token: str) -> TokenHeader:
        """Read the key, the algorithm and the type that a token names. Raises BadToken."""
        if not token.isascii():
            raise malformed()
        try:
            header = self._checker.get_unverified_header(token)
        except (PyJWTError, RecursionError):
            raise malformed() from None
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise BadToken("the token's algorithm is not accepted here")
        # RFC 7515 §4.1.11: a token may demand extensions, and none is known here.
        if "crit" in header:
            raise malformed()
        kind = header.get("typ")
        return TokenHeader(header.get("kid"), algorithm, kind if isinstance(kind, str) else None)

    def claims(self, token: str, algorithm: str, key: SigningKey) -> dict[str, Any]:
        """Check the signature with ``key``, and read the claims. Raises BadToken."""
        try:
            signed = self._checker.decode_complete(token, key.material, algorithms=[algorithm])
        except InvalidSignatureError:
            raise BadToken("the token's signature is not valid") from None
        except (PyJWTError, RecursionError):
            raise malformed() from None
        return _object(signed["payload"])


def unchecked_claims(token: str) -> dict[str, Any] | None:
    """The claims of a token that nobody has checked, to find whoever can; None for a text that is no JWT.

    It has three parts of base64url, of which the first two are JSON objects.
    """
    parts = token.split(".", 3)
    if len(parts) != 3 or _BASE64URL.fullmatch(parts[2]) is None:
        return None
    try:
        _object(_decoded(parts[0]))
        return _object(_decoded(parts[1]))
    except ValueError:
        return None


_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


def _decoded(part: str) -> bytes:
    if _BASE64URL.fullmatch(part) is None:
        raise malformed()
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = parse(text)
    except BadJson:
        raise malformed() from None
    if not isinstance(found, dict):
        raise malformed()
    return found


def malformed() -> BadToken:
    """The failure of a text that is no signed token."""
    return BadToken("the token is not a valid JWT")
