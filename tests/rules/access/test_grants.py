"""Answers of token endpoints, and requests to authorization servers."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.access.grants import (
    Grant,
    GrantRefused,
    OAuthClient,
    authorization_url,
    challenge_of,
    client_metadata,
    decode_grant,
    encode_grant,
    issuer_agrees,
    read_registration,
    read_tokens,
)

GRANT = Grant(
    "alice:0", "https://a.example", "https://a.example/token", None, "id", "access", "refresh", "x",
    "https://r.example", 0.0, 0.0, 3600.0,
)  # fmt: skip


def answer(**members: Any) -> bytes:
    return orjson.dumps({"access_token": "abc", "token_type": "Bearer", **members})


def test_a_grant_comes_back_as_it_was() -> None:
    """What was written is read; anything else is none."""
    assert decode_grant(encode_grant(GRANT)) == GRANT
    assert [decode_grant(other) for other in (b"{", b"[]", b"{}", b'{"principal":"x"}')] == [None] * 4


def test_nothing_shows_a_token() -> None:
    """Whatever is logged or shown of these holds no secret."""
    shown = (
        f"{GRANT!r} {read_tokens(200, answer(refresh_token='r'))!r} {OAuthClient('id', 'hush', 'basic')!r}"
    )
    for word in ("access", "refresh", "abc", "hush"):
        assert word not in shown


def test_when_a_token_is_renewed() -> None:
    """Thirty seconds before its end, less for a short one, and never where no end is known."""
    assert not GRANT.due(3569)
    assert GRANT.due(3570)
    assert not GRANT._replace(expires=60.0).due(53)
    assert not GRANT._replace(expires=None).due(1e12)
    assert GRANT.over(3600)
    assert not GRANT.over(3599)
    assert not GRANT._replace(expires=None).over(1e12)


def test_tokens() -> None:
    """Types in any case, lives in any number, scopes where they are named."""
    found = read_tokens(200, answer(refresh_token="r", expires_in="60", scope="a b", token_type="bearer"))
    assert found == ("abc", "r", 60.0, "a b")
    assert read_tokens(200, answer(expires_in=1e300)).life == 10 * 365 * 86400.0
    odd_lives: tuple[object, ...] = (True, -1, 0, "x", None, [], "9" * 20)
    for odd in odd_lives:
        assert read_tokens(200, answer(expires_in=odd)).life is None
    assert read_tokens(200, answer(scope=5)).scope is None


@pytest.mark.parametrize(
    "members",
    [
        {"token_type": "mac"},
        {"access_token": ""},
        {"access_token": "a\r\nX: y"},
        {"access_token": "a" * 20000},
        {"access_token": 5},
        {"refresh_token": "a b"},
    ],
)
def test_tokens_that_cannot_be_sent(members: dict[str, Any]) -> None:
    """Nothing of an answer can break into a header field."""
    with pytest.raises(ValueError, match="token answer"):
        read_tokens(200, answer(**members))


def test_answers_that_are_none() -> None:
    """Lists and garbage with status 200."""
    for body in (b"[]", b"x", b"null"):
        with pytest.raises(ValueError, match="JSON object"):
            read_tokens(200, body)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error":"invalid_grant"}', "invalid_grant"),
        (b'{"error":"<script>"}', "status 400"),
        (b'{"error":7}', "status 400"),
        (b"garbage", "status 400"),
    ],
)
def test_refusals(body: bytes, code: str) -> None:
    """The error code where it is one, or the status."""
    with pytest.raises(GrantRefused) as refused:
        read_tokens(400, body)
    assert refused.value.code == code
    with pytest.raises(GrantRefused):
        read_registration(400, body)


@given(st.binary())
def test_no_answer_breaks_the_reader(body: bytes) -> None:
    """Whatever comes is tokens, a refusal, or a ValueError."""
    for status in (200, 400):
        with contextlib.suppress(ValueError, GrantRefused):
            read_tokens(status, body)


def test_a_challenge() -> None:
    """RFC 7636, appendix B."""
    assert (
        challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
        == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )


def test_an_authorization_url() -> None:
    """Parameters are encoded, and those of the endpoint stay."""
    assert authorization_url("https://a/x", {"state": "a&b"}) == "https://a/x?state=a%26b"
    assert authorization_url("https://a/x?t=1", {"state": "s"}) == "https://a/x?t=1&state=s"


def test_the_issuer_of_an_answer() -> None:
    """Equal to the last character; absent only where it was not promised."""
    assert issuer_agrees("https://a", "https://a", required=True)
    assert not issuer_agrees("https://a/", "https://a", required=False)
    assert issuer_agrees(None, "https://a", required=False)
    assert not issuer_agrees(None, "https://a", required=True)


def test_a_client_of_its_own() -> None:
    """The adapter is a web client with one redirect, but a native one on this machine."""
    metadata = client_metadata("adapter", "https://t.example/cb", loopback=False)
    assert metadata["redirect_uris"] == ["https://t.example/cb"]
    assert metadata["application_type"] == "web"
    assert client_metadata("adapter", "http://localhost/cb", loopback=True)["application_type"] == "native"


def test_registrations() -> None:
    """Public clients, and those with a secret in one of two ways."""
    assert read_registration(201, b'{"client_id":"a"}') == OAuthClient("a")
    found = read_registration(200, b'{"client_id":"a","client_secret":"s","client_secret_expires_at":5}')
    assert found == OAuthClient("a", "s", "client_secret_basic", 5.0)
    posted = b'{"client_id":"a","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}'
    assert read_registration(201, posted).method == "client_secret_post"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"client_id":5}',
        b'{"client_id":"a","client_secret":5}',
        b'{"client_id":"a","token_endpoint_auth_method":"private_key_jwt"}',
        b'{"client_id":"a","token_endpoint_auth_method":"client_secret_basic"}',
    ],
)
def test_registrations_that_cannot_be_used(body: bytes) -> None:
    """Without an id, or with a way to authenticate that the adapter has not."""
    with pytest.raises(ValueError, match="registration"):
        read_registration(201, body)
