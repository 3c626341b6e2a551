"""The proofs that the adapter is the client, as an authorization server checks them."""

from __future__ import annotations

import base64

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from adapter.oauth.upstream_credentials import (
    ASSERTION_TYPE,
    SignedProof,
    algorithm_of,
    basic_proof,
    post_proof,
    private_key,
)

ENDPOINT = "https://login.example/token"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: object, seal: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, seal or NoEncryption())  # type: ignore[attr-defined, no-any-return]  # all kinds of keys have it


def test_basic_encodes_id_and_secret() -> None:
    """A colon or a percent sign in either does not change where the other begins (RFC 6749 §2.3.1)."""
    fields, form = basic_proof("a:b", "p%w ö")(ENDPOINT)
    assert base64.b64decode(fields["Authorization"].removeprefix("Basic ")) == b"a%3Ab:p%25w+%C3%B6"
    assert form == {}


def test_post_has_both_in_the_form() -> None:
    """And nothing in the head."""
    assert post_proof("a", "s")(ENDPOINT) == ({}, {"client_id": "a", "client_secret": "s"})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA, "RS256"),
        (ec.generate_private_key(ec.SECP256R1()), "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
)
def test_assertion_is_signed_and_short_lived(key: object, algorithm: str) -> None:
    """Issuer and subject are the client, the audience is the endpoint, and none is used twice (RFC 7523 §3)."""
    read = private_key(pem(key))
    prove = SignedProof("adapter", read, lambda: 1000.0, key_id="k1")
    (fields, form), (_, again) = prove(ENDPOINT), prove(ENDPOINT)
    assert fields == {} and (form["client_id"], form["client_assertion_type"]) == ("adapter", ASSERTION_TYPE)
    told = jwt.decode(
        form["client_assertion"],
        read.public_key(),
        [algorithm],
        {"verify_exp": False, "verify_iat": False},
        audience=ENDPOINT,
    )
    assert told | {"jti": ""} == {
        "iss": "adapter", "sub": "adapter", "aud": ENDPOINT, "jti": "", "iat": 1000, "exp": 1060,
    }  # fmt: skip
    assert jwt.get_unverified_header(form["client_assertion"])["kid"] == "k1"
    assert form["client_assertion"] != again["client_assertion"]


def test_audience_may_be_another() -> None:
    """Some servers want their issuer identifier."""
    form = SignedProof("a", RSA, lambda: 1.0, audience="https://login.example")(ENDPOINT).form
    claims = jwt.decode(form["client_assertion"], options={"verify_signature": False})
    assert claims["aud"] == "https://login.example"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no key", "holds no private key in PEM"),
        (pem(RSA, BestAvailableEncryption(b"x")), "is encrypted"),
        (pem(x25519.X25519PrivateKey.generate()), "neither RSA nor"),
        (pem(ec.generate_private_key(ec.SECP192R1())), "cannot sign tokens"),
    ],
)
def test_keys_that_cannot_sign(content: bytes, sentence: str) -> None:
    """The sentence says why, and holds nothing of the key."""
    with pytest.raises(ValueError, match=sentence):
        private_key(content)


def test_algorithms_follow_from_keys() -> None:
    """Nobody has to name one."""
    assert algorithm_of(RSA) == "RS256"
