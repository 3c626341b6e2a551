"""Proofs of the adapter's that it is the client of an authorization server (RFC 6749 §2.3, RFC 7523)."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from adapter.pipeline.key_set import algorithms_of
from adapter.rules.access.grants import OAuthClient, Tokens, read_tokens
from adapter.upstream.outgoing import IssuerHttp

ASSERTION_LIFE = 60
"""Seconds for which an assertion is valid."""

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey | Ed448PrivateKey


class Proof(NamedTuple):
    """Header fields and form fields of one request to a token endpoint."""

    fields: dict[str, str]
    form: dict[str, str]


ClientProof = Callable[[str], Proof]
"""Makes the proof for a request to the token endpoint at this URL."""


def basic_proof(client_id: str, secret: str) -> ClientProof:
    """Prove by HTTP Basic authentication."""
    # RFC 6749 §2.3.1: both are form-encoded before they are joined.
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    fields = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return lambda _: Proof(fields, {})


def post_proof(client_id: str, secret: str) -> ClientProof:
    """Prove by the secret in the form."""
    return lambda _: Proof({}, {"client_id": client_id, "client_secret": secret})


def proof_of(client: OAuthClient) -> ClientProof:
    """The proof that the adapter is ``client``; a public client only says so."""
    if client.secret is None:
        return lambda _: Proof({}, {"client_id": client.id})
    make = basic_proof if client.method == "client_secret_basic" else post_proof
    return make(client.id, client.secret)


@dataclass(eq=False)
class SignedProof:
    """Proves by assertions that ``key`` signs. ``clock`` gives Unix time in seconds.

    ``audience`` is that of the assertions, None means the token endpoint.
    """

    client_id: str
    key: PrivateKey
    clock: Callable[[], float]
    key_id: str | None = field(default=None, kw_only=True)
    audience: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._algorithm = algorithm_of(self.key)
        self._headers = None if self.key_id is None else {"kid": self.key_id}

    def __repr__(self) -> str:
        return f"<SignedProof of {self.client_id!r} by {self._algorithm}>"

    def __call__(self, endpoint: str) -> Proof:
        """See ClientProof."""
        now = int(self.clock())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": self.audience or endpoint,
            "jti": secrets.token_urlsafe(24),
            "iat": now,
            "exp": now + ASSERTION_LIFE,
        }
        assertion = jwt.encode(claims, self.key, self._algorithm, self._headers)
        form = {
            "client_id": self.client_id,
            "client_assertion_type": ASSERTION_TYPE,
            "client_assertion": assertion,
        }
        return Proof({}, form)


def private_key(pem: bytes) -> PrivateKey:
    """The key in a PEM file. Raises ValueError with a sentence that holds nothing of it."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnicodeDecodeError) as error:
        needs = "is encrypted" if isinstance(error, TypeError) else "holds no private key in PEM"
        raise ValueError(f"the file {needs}") from None
    if not isinstance(key, PrivateKey):
        raise ValueError("the key is neither RSA nor of an elliptic curve that signs")
    try:
        algorithm_of(key)
    except ValueError as error:
        raise ValueError(f"the key {error}") from None
    return key


def algorithm_of(key: PrivateKey) -> str:
    """The algorithm (RFC 7518 §3.1) by which a key signs. Raises ValueError for one that JWTs cannot be signed with."""
    algorithms = algorithms_of(key.public_key())
    return "RS256" if "RS256" in algorithms else min(algorithms)


# --- requests of a client for tokens, and to revoke them -------------------------------------------------------


async def post_form(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and body of the answer to a form of the client that ``prove`` is about. Raises what ``http`` raises."""
    proof = prove(endpoint)
    return await http.form(endpoint, {**form, **proof.form}, proof.fields)


async def request_tokens(
    http: IssuerHttp, endpoint: str, prove: ClientProof, form: Mapping[str, str]
) -> Tokens:
    """Ask for tokens. Raises GrantRefused, ValueError, and what ``http`` raises."""
    return read_tokens(*await post_form(http, endpoint, prove, form))


async def request_revocation(http: IssuerHttp, endpoint: str, prove: ClientProof, token: str) -> bool:
    """Revoke a refresh token or an access token (RFC 7009). False: the server refused. Raises what ``http`` raises."""
    status, _ = await post_form(http, endpoint, prove, {"token": token})
    return status == 200
