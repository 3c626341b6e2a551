"""Callers that bring a signed token: what lets them in, and the sentence for each reason that does not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.jwt import BadToken, Jwt, Signatures, TokenHeader, unchecked_claims
from adapter.pipeline.key_set import Keys, OneKey, SigningKey
from tests.pipeline.issuer import NOW, Clock, PrivateKey, bearing, claims, ec_key, ed_key, pem, rsa_key, token

SECRET = "a secret of no fewer than thirty-two bytes"
POLICY = {"secret": SECRET, "issuer": "https://id.example", "audience": "adapter"}


def no_key_set(url: str) -> Keys:
    raise AssertionError(url)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def plugin(policy: dict[str, Any], clock: Clock | None = None) -> Jwt:
    return Jwt.of(policy, no_key_set, clock or Clock())


async def refused(jwt: Jwt, sent: str | None) -> str:
    with pytest.raises(AuthRefused) as refusal:
        await jwt(bearing(sent))
    return str(refusal.value)


def segment(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


HS256 = segment(b'{"alg":"HS256"}')
"""A header."""


# --- who is let in --------------------------------------------------------------------------------------------


async def test_v22_the_identity_is_the_claims() -> None:
    """Of a token of the right issuer, for the right audience, in time."""
    said = claims(email="ann@id.example")
    assert await plugin(POLICY)(bearing(token(SECRET, "HS256", said))) == said


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (rsa_key(), "RS256"),
        (rsa_key(), "RS512"),
        (rsa_key(), "PS256"),
        (ec_key(), "ES256"),
        (ec_key(ec.SECP384R1), "ES384"),
        (ec_key(ec.SECP521R1), "ES512"),
        (ed_key(), "EdDSA"),
    ],
)
async def test_v22_public_keys_check_the_algorithms_of_their_kind(key: PrivateKey, algorithm: str) -> None:
    """And line ends may be written as variables have them."""
    jwt = plugin({"public_key": pem(key).replace("\n", "\\n")})
    assert (await jwt(bearing(token(key, algorithm))))["sub"] == "ann"


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
async def test_v22_the_scheme_has_any_case(scheme: str) -> None:
    """RFC 7235 §2.1."""
    assert await plugin(POLICY)(bearing(token(SECRET, "HS256"), scheme))


@pytest.mark.parametrize(
    "said",
    [
        {"scope": "users:read users:write"},
        {"scope": ["users:write", "users:read"]},
        {"scp": ["users:read", "users:write", "more"]},
        {"scp": "users:read users:write"},
        {"scope": "users:read", "scp": ["users:write"]},
    ],
)
@pytest.mark.parametrize("scopes", ["users:read users:write", ["users:read", "users:write"]])
async def test_v22_scopes_are_read_from_either_claim(said: dict[str, Any], scopes: Any) -> None:
    """As a text or a list, in the token as in the policy."""
    assert await plugin({**POLICY, "scopes": scopes})(bearing(token(SECRET, "HS256", claims(**said))))


@pytest.mark.parametrize("aud", ["adapter", ["other", "adapter"]])
async def test_v22_one_of_the_audiences_has_to_match(aud: Any) -> None:
    """Of those in the token with those in the policy."""
    jwt = plugin({**POLICY, "audience": ["console", "adapter"]})
    assert await jwt(bearing(token(SECRET, "HS256", claims(aud=aud))))


@pytest.mark.parametrize(
    "said", [{"exp": NOW - 59}, {"exp": NOW - 59.5}, {"nbf": NOW + 60}, {"nbf": NOW - 1}, {"iat": NOW + 9}]
)
async def test_v22_clocks_may_differ_by_a_minute(said: dict[str, Any]) -> None:
    """Unless the policy says otherwise, as text too, which is what variables give."""
    sent = token(SECRET, "HS256", claims(**said))
    assert await plugin(POLICY)(bearing(sent))
    if said.get("exp") or said.get("nbf", 0) > NOW:
        assert await refused(plugin({**POLICY, "leeway": "0"}), sent)


# --- who is not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"exp": NOW - 60}, "unauthorized: the token has expired"),
        ({"exp": None}, "unauthorized: the token does not say when it expires"),
        ({"exp": "tomorrow"}, "unauthorized: the token does not say when it expires"),
        ({"exp": True}, "unauthorized: the token does not say when it expires"),
        ({"exp": 10**400}, "unauthorized: the token does not say when it expires"),
        ({"nbf": NOW + 61}, "unauthorized: the token is not valid yet"),
        ({"nbf": "soon"}, "unauthorized: the token is not valid yet"),
        ({"iat": NOW + 61}, "unauthorized: the token is not valid yet"),
        ({"iat": "soon"}, "unauthorized: the token is not valid yet"),
        ({"iss": "https://id.example/"}, "unauthorized: the token is of another issuer"),
        ({"iss": None}, "unauthorized: the token is of another issuer"),
        ({"iss": ["https://id.example"]}, "unauthorized: the token is of another issuer"),
        ({"aud": "other"}, "unauthorized: the token is for another audience"),
        ({"aud": None}, "unauthorized: the token is for another audience"),
        ({"aud": ["other", 7]}, "unauthorized: the token is for another audience"),
        ({"scope": "users:read"}, "unauthorized: insufficient scope, the token lacks users:write"),
        ({"scope": "users"}, "unauthorized: insufficient scope, the token lacks users:read users:write"),
        ({"email": None}, "unauthorized: the token lacks the claim email"),
    ],
)
async def test_v22_each_reason_has_its_sentence(said: dict[str, Any], sentence: str) -> None:
    """None of which holds anything of the token."""
    policy = {**POLICY, "scopes": "users:read users:write", "required_claims": ["sub", "email"]}
    good = {"scope": "users:read users:write", "email": "ann@id.example"}
    jwt = plugin(policy)
    assert await refused(jwt, token(SECRET, "HS256", claims(**{**good, **said}))) == sentence


@pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Bearer", "Bearer a b"])
async def test_v22_without_a_token_nobody_is_let_in(header: str | None) -> None:
    """Nor with credentials of another kind."""
    asked = bearing(None)
    asked["headers"] = {} if header is None else {"authorization": header}
    with pytest.raises(AuthRefused) as refusal:
        await plugin(POLICY)(asked)
    assert str(refusal.value) == "unauthorized: a Bearer token is required"


@pytest.mark.parametrize(
    "sent",
    [
        "opaque",
        "a.b",
        "a.b.c",
        "ü.ü.ü",
        "\udcff",
        f"{segment(b'[]')}.{segment(b'{}')}.x",
        f"{segment(b'not json')}.{segment(b'{}')}.x",
        f"{segment(json.dumps({'alg': 'HS256', 'kid': 7}).encode())}.{segment(b'{}')}.x",
        f"{segment(json.dumps({'alg': 'HS256', 'crit': ['x'], 'x': 1}).encode())}.{segment(b'{}')}.x",
        "a.b.c.d.e",
    ],
)
async def test_v22_what_is_no_token_is_refused(sent: str) -> None:
    """Whatever it is instead."""
    assert (await refused(plugin(POLICY), sent)) in (
        "unauthorized: the token is not a valid JWT",
        "unauthorized: the token's algorithm is not accepted here",
    )


async def test_v22_a_signature_of_another_key_is_not_valid() -> None:
    """Nor one over other claims."""
    jwt = plugin(POLICY)
    sentence = "unauthorized: the token's signature is not valid"
    assert await refused(jwt, token(SECRET + "!", "HS256")) == sentence
    header, _, signature = token(SECRET, "HS256").split(".")
    forged = segment(json.dumps(claims(sub="root")).encode())
    assert await refused(jwt, f"{header}.{forged}.{signature}") == sentence
    assert await refused(jwt, f"{header}.{forged}.") == sentence


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None, ["HS256"], "HS1"])
@pytest.mark.parametrize("policy", [POLICY, {"public_key": pem(rsa_key())}])
async def test_v22_no_signature_is_none(policy: dict[str, Any], alg: Any) -> None:
    """The algorithm is the policy's choice, never the token's (RFC 8725 §3.1)."""
    head = segment(json.dumps({} if alg is None else {"alg": alg}).encode())
    body = segment(json.dumps(claims()).encode())
    sentence = "unauthorized: the token's algorithm is not accepted here"
    assert await refused(plugin(policy), f"{head}.{body}.") == sentence


async def test_v22_a_public_key_is_no_secret() -> None:
    """What everybody may know signs nothing: neither as the PEM it came in, nor with its line ends trimmed."""
    public = pem(rsa_key())
    jwt = plugin({"public_key": public})
    for material in (public, public.strip(), public.replace("\n", "\\n")):
        signed = f"{HS256}.{segment(json.dumps(claims()).encode())}"
        signature = hmac.new(material.encode(), signed.encode(), hashlib.sha256).digest()
        sent = f"{signed}.{segment(signature)}"
        assert await refused(jwt, sent) == "unauthorized: the token's algorithm is not accepted here"


async def test_v22_algorithms_can_be_narrowed() -> None:
    """To some of those that the key is for."""
    jwt = plugin({"public_key": pem(rsa_key()), "algorithms": "PS256"})
    assert await jwt(bearing(token(rsa_key(), "PS256")))
    assert await refused(jwt, token(rsa_key(), "RS256"))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({}, "policy must have exactly one of jwks_url, secret, public_key"),
        ({"secret": ""}, "policy must have exactly one of jwks_url, secret, public_key"),
        (
            {**POLICY, "jwks_url": "https://id"},
            "policy must have exactly one of jwks_url, secret, public_key",
        ),
        ({"secret": "short"}, "policy.secret is shorter than the 32 bytes that HS256 requires"),
        ({"secret": pem(rsa_key())}, "policy.secret is a public key or a certificate, not a secret"),
        ({"secret": "${SECRET}"}, "policy.secret holds a placeholder that was not resolved"),
        ({"public_key": "MIIB"}, "policy.public_key is not a public key in PEM form"),
        (
            {"public_key": pem(rsa_key("small", 1024))},
            "policy.public_key is an RSA key of 1024 bits; the minimum is 2048",
        ),
        (
            {"public_key": pem(ec_key(ec.BrainpoolP256R1))},
            "policy.public_key is a kind of key that cannot sign tokens",
        ),
        (
            {"public_key": pem(ec_key()), "algorithms": ["ES256", "HS256"]},
            "policy.algorithms: HS256 does not fit this key, use ES256",
        ),
        (
            {"secret": SECRET, "algorithms": ["none"]},
            "policy.algorithms: none does not fit this key, use HS256",
        ),
        (
            {"jwks_url": "file:///etc/keys"},
            "policy.jwks_url must be a URL that begins with https:// or http://",
        ),
        ({**POLICY, "leeway": "soon"}, "policy.leeway is a number of seconds"),
        ({**POLICY, "leeway": -1}, "policy.leeway is a number of seconds"),
        ({**POLICY, "leeway": True}, "policy.leeway is a number of seconds"),
        ({**POLICY, "scopes": {"a": 1}}, "policy.scopes is a text or a list of texts; write each in quotes"),
        (
            {**POLICY, "scope": "a"},
            "policy has no key scope; known keys: algorithms, audience, issuer, jwks_url, leeway, public_key,"
            " required_claims, scopes, secret",
        ),
    ],
)
def test_w3_a_policy_that_cannot_be_meant_ends_the_start(policy: dict[str, Any], sentence: str) -> None:
    """With a sentence that shows nothing of a secret."""
    with pytest.raises(ValueError, match="auth plugin") as refusal:
        plugin(policy)
    assert str(refusal.value) == f"auth plugin 'jwt': {sentence}"


async def test_neither_secret_nor_token_stand_in_a_repr() -> None:
    """A repr ends in logs."""
    jwt = plugin(POLICY)
    await jwt(bearing(token(SECRET, "HS256")))
    assert repr(jwt) == "<Jwt by HS256>"


# --- signed tokens: what is read of one before and after its signature is checked ------------------------------


KEY = SigningKey(ec_key().public_key(), frozenset(("ES256",)))
SIGNATURES = Signatures(OneKey(KEY), frozenset(("RS256", "ES256")))
GOOD = token(ec_key(), "ES256", kid="k1")

TOKEN_CHARACTERS = st.sampled_from("abcXYZ019-_.=+/ü\0 ")


def test_header_and_claims_are_read() -> None:
    """The claims also before anybody has checked them, to find whoever can."""
    assert SIGNATURES.header(GOOD) == TokenHeader("k1", "ES256", "JWT")
    assert SIGNATURES.claims(GOOD, "ES256", KEY) == claims()
    assert unchecked_claims(GOOD) == claims()
    assert repr(SIGNATURES) == "<Signatures by ES256, RS256>"


@given(st.integers(0, len(GOOD) - 1), TOKEN_CHARACTERS)
def test_a_changed_token_is_refused(place: int, character: str) -> None:
    """Wherever it is changed: it never says anything else than what was signed."""
    changed = GOOD[:place] + character + GOOD[place + 1 :]
    try:
        header = SIGNATURES.header(changed)
        said = SIGNATURES.claims(changed, header.algorithm, KEY)
    except BadToken:
        return
    assert said == claims()


@given(st.text() | st.text(TOKEN_CHARACTERS) | st.lists(st.text(TOKEN_CHARACTERS)).map(".".join))
def test_any_text_can_be_looked_at(text: str) -> None:
    """A BadToken, or nothing."""
    assert unchecked_claims(text) is None or text.count(".") == 2
    with pytest.raises(BadToken):
        SIGNATURES.claims(text, SIGNATURES.header(text).algorithm, KEY)


@given(st.dictionaries(st.text(), st.none() | st.integers(-(2**53), 2**53) | st.text() | st.lists(st.text())))
def test_claims_are_as_they_were_signed(said: dict[str, Any]) -> None:
    """Whatever they hold."""
    signed = token(ec_key(), "ES256", said)
    assert SIGNATURES.claims(signed, "ES256", KEY) == said == unchecked_claims(signed)
    assert json.dumps(said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a.b",
        "..",
        "e30.e30",
        "e30.e30.A.A",
        "W10.e30.A",
        "e30.W10.A",
        "e30.e30.ü",
        "e30.e3=.A",
        "e3.e30.A",
    ],
)
def test_what_has_not_three_parts_is_no_jwt(text: str) -> None:
    """Two objects in base64url, and a signature."""
    assert unchecked_claims(text) is None
