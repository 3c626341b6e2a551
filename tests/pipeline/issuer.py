"""An issuer of tokens: it has keys, publishes them, and signs whatever a test asks for."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from adapter.pipeline.context import AuthRequest
from adapter.rules.access.principals import Caller

NOW = 1_700_000_000.0
"""Unix seconds; that they are long over shows that nobody looks at another clock."""

URL = "https://id.example/keys?client=adapter"


class Clock:
    """Seconds that pass when told."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@functools.cache
def rsa_key(name: str = "first", bits: int = 2048) -> rsa.RSAPrivateKey:
    """One per name, since they take a while to make."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@functools.cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


@functools.cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def pem(key: PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def jwk(key: PrivateKey, kid: str | None = None, **members: Any) -> dict[str, Any]:
    """The public key as a member of a key set."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        spelled = RSAAlgorithm.to_jwk(public)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        spelled = ECAlgorithm.to_jwk(public)
    else:
        spelled = OKPAlgorithm.to_jwk(public)
    named = {} if kid is None else {"kid": kid}
    spelled = json.loads(spelled)
    return {**{name: value for name, value in spelled.items() if name != "key_ops"}, **named, **members}


def document(*members: Any) -> bytes:
    return json.dumps({"keys": list(members)}).encode()


class Publisher:
    """Gives ``document`` or raises it, counting how often it was asked; ``go`` lets it answer."""

    def __init__(self, document: bytes | Exception) -> None:
        self.document = document
        self.asked = 0
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, url: str) -> bytes:
        assert url == URL
        self.asked += 1
        self.begun.set()
        await self.go.wait()
        if isinstance(self.document, Exception):
            raise self.document
        return self.document


def claims(**members: Any) -> dict[str, Any]:
    """Those of a token that is good for five minutes; a member of None is left out."""
    usual = {"sub": "ann", "iss": "https://id.example", "aud": "adapter", "exp": int(NOW) + 300}
    return {name: value for name, value in {**usual, **members}.items() if value is not None}


def token(
    key: PrivateKey | str, algorithm: str, said: dict[str, Any] | None = None, *, kid: str | None = None
) -> str:
    """Claims, those of a good token unless others are ``said``, as signed by ``key``."""
    payload = json.dumps(claims() if said is None else said).encode()
    # Not jwt.encode, which signs no claims that are wrong.
    return jwt.PyJWS().encode(payload, key, algorithm, None if kid is None else {"kid": kid})


def bearing(token: str | None, scheme: str = "Bearer") -> AuthRequest:
    fields = {} if token is None else {"Authorization": f"{scheme} {token}"}
    return AuthRequest.of("users", "get-user", Caller("alice:1", "mcp", fields))
