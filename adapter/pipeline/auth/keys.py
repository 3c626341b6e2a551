"""Keys that signatures of tokens are checked with, each bound to the algorithms it is for.

Which algorithms those are follows from the key alone, never from a token: that a public key is taken for the secret
of an HMAC, or a signature for none, cannot come about (RFC 8725 §3.1, §3.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.exceptions import InvalidKeyError, PyJWTError

OF_SECRETS = ("HS256", "HS384", "HS512")
_OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512", "secp256k1": "ES256K"}
OF_PUBLIC_KEYS = (*_OF_RSA, *_OF_CURVES.values(), "EdDSA")

_LEAST_RSA_BITS = 2048
"""RFC 7518 §3.3 and §3.5."""

_PUBLIC_MEMBERS = ("kty", "crv", "n", "e", "x", "y")
_PRIVATE_MEMBERS = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


@dataclass(frozen=True, slots=True, eq=False)
class SigningKey:
    """``material`` as PyJWT takes it; ``algorithms`` are all that it may be used with."""

    material: Any
    algorithms: frozenset[str]
    kid: str | None = None


class Keys(Protocol):
    """The place where the key of a token is found."""

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:
        """The key that goes by ``kid``, or the only one there is where a token names none, if it is for ``algorithm``.

        Whoever asks twice gets the same object as long as the key stays what it is. Raises AuthRefused.
        """


class OneKey:
    """Keys of which there is one; what tokens call it does not matter."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key

    async def find(self, kid: str | None, algorithm: str) -> SigningKey | None:  # noqa: ARG002  (see above: of kid)
        """See Keys."""
        return self._key if algorithm in self._key.algorithms else None


def of_secret(secret: str) -> SigningKey:
    """The key of an HMAC. Raises ValueError for what is no secret, and for one that is shorter than the digest
    (RFC 7518 §3.2), since it could be guessed from any token."""
    material = secret.encode("utf-8")
    fitting = frozenset(name for name in OF_SECRETS if len(material) * 8 >= int(name[2:]))
    if not fitting:
        raise ValueError("is shorter than the 32 bytes that HS256 needs")
    try:
        jwt.get_algorithm_by_name("HS256").prepare_key(material)
    except InvalidKeyError:
        raise ValueError("is a public key or a certificate, which is no secret") from None
    return SigningKey(material, fitting)


def of_pem(pem: str) -> SigningKey:
    """The public key in a PEM text, also where line ends came as ``\\n`` out of a variable. Raises ValueError."""
    try:
        material = load_pem_public_key(pem.replace("\\n", "\n").encode("utf-8"))
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("is no public key in PEM") from None
    return SigningKey(material, _fitting(material))


def of_jwk(member: Mapping[str, Any]) -> SigningKey | None:
    """The key of a member of a JWK set (RFC 7517 §4), None where signatures cannot be checked with it.

    A symmetric key is none of these, nor one with its private part: what a set that everybody may read calls a secret
    is known to everybody.
    """
    if is_disclosed(member):
        return None
    operations = member.get("key_ops")
    if member.get("use", "sig") != "sig" or (isinstance(operations, list) and "verify" not in operations):
        return None
    if member.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        # Only what is public: with the rest it would be a private key, and with "alg" one that PyJWT might not know.
        material = jwt.PyJWK({name: member[name] for name in _PUBLIC_MEMBERS if name in member}).key
        fitting = _fitting(material)
    except (PyJWTError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return None
    if (only := member.get("alg")) is not None:
        fitting &= {only} if isinstance(only, str) else frozenset()
    kid = member.get("kid")
    return SigningKey(material, fitting, kid if isinstance(kid, str) else None) if fitting else None


def is_disclosed(member: Mapping[str, Any]) -> bool:
    """Tell whether a member of a JWK set holds what only the issuer may know, so that anybody can sign with it."""
    return not _PRIVATE_MEMBERS.isdisjoint(member)


def _fitting(material: object) -> frozenset[str]:
    if isinstance(material, RSAPublicKey):
        if material.key_size < _LEAST_RSA_BITS:
            raise ValueError(
                f"is an RSA key of {material.key_size} bits, and {_LEAST_RSA_BITS} are the least"
            )
        return frozenset(_OF_RSA)
    if isinstance(material, EllipticCurvePublicKey) and material.curve.name in _OF_CURVES:
        return frozenset((_OF_CURVES[material.curve.name],))
    if isinstance(material, Ed25519PublicKey | Ed448PublicKey):
        return frozenset(("EdDSA",))
    raise ValueError("is a key of a kind that tokens are not signed with")
