"""The keys of an issuer: how long they are kept, when they are fetched again, and what counts as one."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from adapter.errors import UpstreamUnreachable
from adapter.pipeline.failures import AuthRefused
from adapter.pipeline.jwt import Jwt
from adapter.pipeline.key_set import FRESH, LARGEST, MOST_KEYS, PAUSE, PAUSE_WITHOUT_KEYS, KeySet
from tests.pipeline.issuer import (
    URL,
    Clock,
    Publisher,
    bearing,
    document,
    ec_key,
    ed_key,
    jwk,
    rsa_key,
    token,
)

FIRST, SECOND = jwk(rsa_key("first"), "k1"), jwk(rsa_key("second"), "k2")


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def publisher() -> Publisher:
    return Publisher(document(FIRST))


@pytest.fixture
def keys(publisher: Publisher, clock: Clock) -> KeySet:
    return KeySet(URL, publisher, structlog.get_logger(), clock)


async def test_v22_tokens_are_checked_with_the_keys_of_their_issuer(keys: KeySet) -> None:
    """Whichever of them they name."""
    jwt = Jwt.of({"jwks_url": URL}, lambda _: keys, Clock())
    assert (await jwt(bearing(token(rsa_key("first"), "RS256", kid="k1"))))["sub"] == "ann"
    for sent, sentence in (
        (token(rsa_key("second"), "RS256", kid="k1"), "unauthorized: the token's signature is not valid"),
        (
            token(rsa_key("second"), "RS256", kid="k2"),
            "unauthorized: the token is signed with an unknown key",
        ),
    ):
        with pytest.raises(AuthRefused) as refusal:
            await jwt(bearing(sent))
        assert str(refusal.value) == sentence


async def test_v22_keys_are_kept_for_ten_minutes(keys: KeySet, publisher: Publisher, clock: Clock) -> None:
    """Then one that was withdrawn is known no longer, and one that stayed is the same object."""
    publisher.document = document(FIRST, SECOND)
    stays = await keys.find("k1", "RS256")
    clock.now = FRESH - 1
    assert await keys.find("k2", "RS256") is not None
    assert publisher.asked == 1
    publisher.document = document(FIRST)
    clock.now = FRESH
    assert await keys.find("k2", "RS256") is None
    assert await keys.find("k1", "RS256") is stays
    assert publisher.asked == 2


async def test_v22_a_new_key_is_fetched_when_a_token_names_it(
    keys: KeySet, publisher: Publisher, clock: Clock
) -> None:
    """But not more often than every minute, whatever tokens name."""
    await keys.find("k1", "RS256")
    publisher.document = document(FIRST, SECOND)
    assert await keys.find("k2", "RS256") is None
    assert publisher.asked == 1
    clock.now = PAUSE
    assert await keys.find("k2", "RS256") is not None
    for made_up in ("a", "b", "c"):
        assert await keys.find(made_up, "RS256") is None
    assert publisher.asked == 2


async def test_v22_all_who_need_keys_wait_for_one_fetch(keys: KeySet, publisher: Publisher) -> None:
    """However many they are."""
    publisher.go.clear()
    asking = [asyncio.ensure_future(keys.find("k1", "RS256")) for _ in range(20)]
    await publisher.begun.wait()
    publisher.go.set()
    found = await asyncio.gather(*asking)
    assert found[0] is not None
    assert set(found) == {found[0]}
    assert publisher.asked == 1


async def test_a_key_whose_private_part_is_published_is_not_used(keys: KeySet, publisher: Publisher) -> None:
    """Anybody could sign with it; the log says so, and the others of the set stay."""
    publisher.document = document(FIRST, {**SECOND, "d": "AQAB"})
    with capture_logs() as logged:
        assert await keys.find("k2", "RS256") is None
    assert [(entry["event"], entry["keys"]) for entry in logged] == [
        ("an issuer publishes private keys, which are not used", 1)
    ]
    assert await keys.find("k1", "RS256") is not None


async def test_v22_without_any_keys_nobody_is_let_in(
    keys: KeySet, publisher: Publisher, clock: Clock
) -> None:
    """The sentence says when to come again and not from where; the log says why."""
    publisher.document = UpstreamUnreachable(
        "The upstream server cannot be reached: it refused the connection."
    )
    with capture_logs() as logged, pytest.raises(AuthRefused) as refusal:
        await keys.find("k1", "RS256")
    assert str(refusal.value) == "unauthorized: the keys for checking tokens cannot be fetched now"
    assert refusal.value.retry_after == PAUSE_WITHOUT_KEYS
    assert [entry["why"] for entry in logged] == [str(publisher.document)]
    with pytest.raises(AuthRefused):
        await keys.find("k1", "RS256")
    assert publisher.asked == 1
    publisher.document = document(FIRST)
    clock.now = PAUSE_WITHOUT_KEYS
    assert await keys.find("k1", "RS256") is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b"",
        b'{"keys": []}' + b" " * LARGEST,
        document(FIRST, *({"kid": str(number)} for number in range(MOST_KEYS))),
        b"[" * 500_000,
    ],
)
async def test_what_is_no_key_set_counts_as_none(keys: KeySet, publisher: Publisher, answer: bytes) -> None:
    """A page of errors does not take the keys away that are there."""
    publisher.document = answer
    with pytest.raises(AuthRefused, match="cannot be fetched"):
        await keys.find("k1", "RS256")


@pytest.mark.parametrize(
    ("member", "algorithm", "found"),
    [
        (jwk(rsa_key(), "k"), "PS512", True),
        (jwk(rsa_key(), "k", alg="RS256"), "RS256", True),
        (jwk(rsa_key(), "k", alg="RS256"), "RS512", False),
        (jwk(rsa_key(), "k", alg="RSA-OAEP"), "RS256", False),
        (jwk(rsa_key(), "k", alg=7), "RS256", False),
        (jwk(rsa_key(), "k", use="sig", key_ops=["verify"]), "RS256", True),
        (jwk(rsa_key(), "k", use="enc"), "RS256", False),
        (jwk(rsa_key(), "k", key_ops=["encrypt"]), "RS256", False),
        (jwk(rsa_key(), "k", x5c=["MIIB"], ext=True), "RS256", True),
        (jwk(rsa_key(), "k", alg="HS256"), "HS256", False),
        (jwk(rsa_key("small", 1024), "k"), "RS256", False),
        (jwk(rsa_key(), "k", n="!"), "RS256", False),
        (jwk(ec_key(), "k"), "ES256", True),
        (jwk(ec_key(), "k"), "ES384", False),
        (jwk(ec_key(), "k", x="AA"), "ES256", False),
        (jwk(ed_key(), "k"), "EdDSA", True),
        ({"kty": "oct", "kid": "k", "k": base64.urlsafe_b64encode(b"k" * 32).decode()}, "HS256", False),
        ({"kty": "RSA", "kid": "k"}, "RS256", False),
        ({"kid": "k"}, "RS256", False),
        ("k", "RS256", False),
        (jwk(rsa_key(), 7), "RS256", False),  # type: ignore[arg-type]  # an id that is none
    ],
)
async def test_v22_a_key_is_for_the_algorithms_of_its_kind(
    keys: KeySet, publisher: Publisher, member: Any, algorithm: str, found: bool
) -> None:
    """What cannot check a signature is left out, and the others of the set stay."""
    publisher.document = document(member, SECOND)
    assert (await keys.find("k", algorithm) is not None) is found
    assert await keys.find("k2", "RS256") is not None


async def test_a_token_without_an_id_means_the_only_key_that_fits(
    keys: KeySet, publisher: Publisher, clock: Clock
) -> None:
    """Of several it has to name one."""
    publisher.document = document(FIRST, jwk(ec_key(), "k3"))
    assert await keys.find(None, "RS256") is not None
    publisher.document = document(FIRST, SECOND)
    clock.now = FRESH
    assert await keys.find(None, "RS256") is None
    assert "id.example" not in repr(keys)
