"""Tokens as JSON Web Signatures (RFC 7515): the header of one, and its claims once a key has checked them."""

from __future__ import annotations

import base64
import re
from typing import Any, NamedTuple

import jwt
from jwt.exceptions import InvalidSignatureError, PyJWTError

from adapter.errors import BadJson
from adapter.pipeline.key_set import SigningKey
from adapter.wire.envelope import parse


class BadToken(ValueError):
    """A token that does not hold. ``str`` is a sentence about "the token" that quotes nothing of it."""


class BadSignature(BadToken):
    """A token that another key has signed, or that was changed."""


class TokenHeader(NamedTuple):
    """The members of a header that count.

    Members that offer a key (``jwk``, ``jku``, ``x5c``, ``x5u``) are ignored: keys come from the settings alone.
    """

    kid: str | None
    algorithm: str
    type: str | None


class Signatures:
    """Checks signatures by ``algorithms``: the choice is ours, never the token's (RFC 8725 §3.1)."""

    def __init__(self, algorithms: frozenset[str]) -> None:
        self._algorithms = algorithms
        # Signatures only: what claims have to say is for rules, and by our clock.
        self._checker = jwt.PyJWS(algorithms=sorted(algorithms))

    def __repr__(self) -> str:
        return f"<Signatures by {', '.join(sorted(self._algorithms))}>"

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
        """Check the signature with ``key``, and read the claims. Raises BadSignature, and BadToken for no token."""
        try:
            signed = self._checker.decode_complete(token, key.material, algorithms=[algorithm])
        except InvalidSignatureError:
            raise BadSignature("the token's signature is not valid") from None
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
