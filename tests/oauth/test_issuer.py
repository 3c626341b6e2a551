"""JWTs of an issuer over sockets: which of them let somebody in, and what becomes of keys that come and go."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from adapter.errors import IssuerUnavailable, Unauthorized
from adapter.oauth.discovery import Discovery
from adapter.oauth.http import IssuerHttp
from adapter.oauth.issuer import LIFE, Issuer, IssuerTrust, fetch_keys
from adapter.oauth.verified_tokens import Verification, VerifiedTokens
from adapter.pipeline.key_set import KeySet
from adapter.settings.auth import OAuthIssuer
from tests.oauth.authorization_server import KEYS, OAUTH, AuthorizationServer
from tests.pipeline.issuer import NOW, Clock, PrivateKey, document, ec_key, jwk, pem, rsa_key, token

HOUR = 3600


class Reception:
    """An issuer, and what it has let in."""

    def __init__(self, server: AuthorizationServer, jwks_url: str | None = None) -> None:
        self.seconds = Clock(0.0)
        self.clock = Clock()
        self.cache = VerifiedTokens(self.clock)
        http = IssuerHttp(timeout=2.0)
        keys = KeySet(
            server.issuer,
            fetch_keys(http, Discovery(http, self.seconds), jwks_url),
            structlog.get_logger(),
            self.seconds,
            LIFE,
            self.cache.withdraw,
        )
        self.issuer = Issuer(IssuerTrust(OAuthIssuer(issuer=server.issuer), 30.0), keys, self.clock)

    def passes(self, seconds: float) -> None:
        self.seconds.now += seconds
        self.clock.now += seconds

    async def takes(self, sent: str) -> Verification:
        taken = await self.issuer.check(sent)
        self.cache.keep(sent, taken)
        return taken

    async def refuses(self, sent: str) -> str:
        with pytest.raises(Unauthorized) as refused:
            await self.issuer.check(sent)
        return str(refused.value)


@pytest.fixture
def reception(server: AuthorizationServer) -> Reception:
    return Reception(server)


def segment(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def signed(server: AuthorizationServer, header: dict[str, Any], key: PrivateKey | None = None) -> str:
    """A good token with members of the header that it should not have."""
    import jwt

    payload = json.dumps(server.claims()).encode()
    return jwt.PyJWS().encode(payload, key or rsa_key("first"), "RS256", {"kid": "k1", **header})


# --- who is let in ----------------------------------------------------------------------------------------------


async def test_a_token_is_checked_with_the_keys_that_its_issuer_publishes(
    server: AuthorizationServer, reception: Reception
) -> None:
    """They are found by its metadata, and asked for once."""
    for _ in range(3):
        taken = await reception.takes(server.token(scope="mcp"))
    assert taken.token.principal.startswith(f"ann@{server.issuer}:")
    assert taken.token.scopes == {"mcp"}
    assert server.asked == [OAUTH, KEYS]


async def test_keys_may_be_named_by_the_settings(server: AuthorizationServer) -> None:
    """Then no metadata is asked for."""
    del server.answers[OAUTH]
    assert await Reception(server, server.url(KEYS)).takes(server.token())
    assert server.asked == [KEYS]


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", None])
async def test_access_tokens_have_these_types(
    server: AuthorizationServer, reception: Reception, typ: str | None
) -> None:
    """In any case; or none, as of issuers before RFC 9068."""
    assert await reception.takes(signed(server, {"typ": typ}))


async def test_an_elliptic_curve_is_as_good(server: AuthorizationServer, reception: Reception) -> None:
    """Each key is for the algorithms of its kind."""
    server.keys(jwk(ec_key(), "k1"))
    assert await reception.takes(token(ec_key(), "ES256", server.claims(), kid="k1"))


# --- who is not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"exp": None}, "The access token does not say when it expires."),
        ({"exp": int(NOW) - 30}, "The access token has expired."),
        ({"nbf": int(NOW) + 31}, "The access token is not valid yet."),
        ({"iss": "https://other.example"}, "The access token is of another issuer."),
        ({"sub": None}, "The access token lacks the claim sub."),
        ({"cnf": {"jkt": "x"}}, "The access token is bound to a key, which is not supported here."),
    ],
)
async def test_claims_that_let_nobody_in_have_their_sentence(
    server: AuthorizationServer, reception: Reception, said: dict[str, Any], sentence: str
) -> None:
    """For the client that sent them."""
    assert await reception.refuses(server.token(**said)) == sentence


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, ["RS256"], "HS256", "RS512", "RS1"])
@pytest.mark.parametrize("signature", ["", "AAAA"])
async def test_the_algorithm_is_never_the_tokens_choice(
    server: AuthorizationServer, reception: Reception, alg: Any, signature: str
) -> None:
    """RFC 8725 §3.1."""
    sent = f"{segment({'alg': alg, 'kid': 'k1'})}.{segment(server.claims())}.{signature}"
    assert await reception.refuses(sent) == "The access token's algorithm is not accepted here."
    assert server.asked == []


async def test_a_public_key_is_no_secret(server: AuthorizationServer, reception: Reception) -> None:
    """A MAC with what everybody can read is no signature."""
    public = pem(rsa_key("first"))
    text = f"{segment({'alg': 'HS256', 'kid': 'k1'})}.{segment(server.claims())}"
    for material in (public, public.strip(), document(jwk(rsa_key("first"), "k1")).decode()):
        signature = hmac.new(material.encode(), text.encode(), hashlib.sha256).digest()
        assert (await reception.refuses(f"{text}.{segment(signature)}")).endswith("is not accepted here.")


async def test_a_symmetric_key_in_the_set_is_not_used(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Nor under the name of a public one's algorithm."""
    server.keys({"kty": "oct", "k": segment(b"s" * 32), "kid": "k1", "alg": "RS256"})
    assert await reception.refuses(server.token()) == "The access token is signed with an unknown key."


async def test_keys_that_a_token_offers_are_ignored(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Neither taken nor fetched: ``jwk``, ``jku``, ``x5u``, ``x5c``."""
    mine = jwk(rsa_key("second"), "k1")
    server.answers["/mine"] = document(mine)
    offered = {"jwk": mine, "jku": server.url("/mine"), "x5u": server.url("/mine"), "x5c": ["MIIB"]}
    sent = signed(server, offered, rsa_key("second"))
    assert await reception.refuses(sent) == "The access token's signature is not valid."
    assert await reception.takes(signed(server, offered))
    assert "/mine" not in server.asked


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": ["b64"], "b64": False},
        {"crit": []},
        {"kid": 7},
        {"kid": ["k1"]},
        {"kid": {"a": 1}},
    ],
)
async def test_a_header_that_cannot_be_meant_is_refused(
    server: AuthorizationServer, reception: Reception, header: dict[str, Any]
) -> None:
    """Extensions nobody here knows, and key ids that are no text."""
    _, payload, signature = server.token().split(".")
    sent = f"{segment({'alg': 'RS256', 'kid': 'k1', **header})}.{payload}.{signature}"
    assert await reception.refuses(sent) == "The access token is not a valid JWT."


@pytest.mark.parametrize(
    "kid", ["../../etc/passwd", "' OR 1=1 --", "k1\0", "http://127.0.0.1/", "k" * 4000, "K1", ""]
)
async def test_a_key_id_is_only_compared(server: AuthorizationServer, reception: Reception, kid: str) -> None:
    """Whatever it looks like; it names no file and no place."""
    assert await reception.refuses(server.token(kid=kid)) == "The access token is signed with an unknown key."
    assert set(server.asked) == {OAUTH, KEYS}


@pytest.mark.parametrize("typ", ["logout+jwt", "secevent+jwt", "dpop+jwt", "oauth-authz-req+jwt", "x"])
async def test_a_token_of_another_type_is_refused(
    server: AuthorizationServer, reception: Reception, typ: str
) -> None:
    """Whoever signs several kinds of token tells them apart by it (RFC 8725 §3.11)."""
    assert await reception.refuses(signed(server, {"typ": typ})) == "The access token is no access token."


async def test_a_forged_token_is_refused(server: AuthorizationServer, reception: Reception) -> None:
    """One of another key, one whose claims were exchanged, one without its signature."""
    sentence = "The access token's signature is not valid."
    assert await reception.refuses(server.token(rsa_key("second"))) == sentence
    header, _, signature = server.token().split(".")
    forged = segment(server.claims(sub="root"))
    assert await reception.refuses(f"{header}.{forged}.{signature}") == sentence
    assert await reception.refuses(f"{header}.{forged}.") == sentence


@pytest.mark.parametrize("payload", [b"[1]", b"{", b"\xff", b"7", b"[" * 4000 + b"]" * 4000])
async def test_a_signature_over_something_else_is_no_token(reception: Reception, payload: bytes) -> None:
    """Its claims are an object."""
    import jwt

    sent = jwt.PyJWS().encode(payload, rsa_key("first"), "RS256", {"kid": "k1"})
    assert await reception.refuses(sent) == "The access token is not a valid JWT."


async def test_a_header_of_any_depth_is_refused(reception: Reception) -> None:
    """Without an end of the stack."""
    for depth in (500, 5000):
        nested = b'{"alg":"RS256","kid":' + b"[" * depth + b"]" * depth + b"}"
        assert await reception.refuses(f"{segment(nested)}.e30.AA") == "The access token is not a valid JWT."


# --- keys that come and go --------------------------------------------------------------------------------------


async def test_a_new_key_is_asked_for_at_most_once_a_minute(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Whatever ids tokens name."""
    await reception.takes(server.token())
    server.keys(jwk(rsa_key("first"), "k1"), jwk(rsa_key("second"), "k2"))
    new = server.token(rsa_key("second"), "k2")
    await reception.refuses(new)
    reception.passes(59)
    await reception.refuses(new)
    assert server.asked.count(KEYS) == 1
    reception.passes(1)
    assert await reception.takes(new)
    for made_up in ("a", "b", "c"):
        await reception.refuses(server.token(kid=made_up))
    assert server.asked.count(KEYS) == 2


@pytest.mark.parametrize("kid", ["k1", None])
async def test_a_new_key_may_have_the_id_of_the_old_one(
    server: AuthorizationServer, reception: Reception, kid: str | None
) -> None:
    """Or none, as the old one. A signature that is not valid has the keys asked for again, at most once a minute."""
    server.keys(jwk(rsa_key("first"), kid))
    old, new = (token(rsa_key(name), "RS256", server.claims(), kid=kid) for name in ("first", "second"))
    await reception.takes(old)
    for _ in range(3):
        await reception.refuses(new)
    assert server.asked.count(KEYS) == 1
    reception.passes(60)
    server.keys(jwk(rsa_key("second"), kid))
    assert await reception.takes(new)
    assert reception.cache.known(old) is None
    for _ in range(3):
        assert await reception.refuses(old) == "The access token's signature is not valid."
    assert server.asked.count(KEYS) == 2


async def test_a_token_falls_with_its_key(server: AuthorizationServer, reception: Reception) -> None:
    """As soon as the keys were fetched without it, also where it was known; others stay known."""
    both = jwk(rsa_key("first"), "k1"), jwk(rsa_key("second"), "k2")
    server.keys(*both)
    first, second = server.token(), server.token(rsa_key("second"), "k2")
    for sent in (first, second):
        await reception.takes(sent)
    server.keys(both[1])
    reception.passes(60)
    assert reception.cache.known(first) is not None
    await reception.refuses(server.token(kid="unknown"))
    assert reception.cache.known(first) is None
    assert reception.cache.known(second) is not None
    assert await reception.refuses(first) == "The access token is signed with an unknown key."


async def test_a_known_token_is_looked_at_again_when_the_keys_are(
    server: AuthorizationServer, reception: Reception
) -> None:
    """So a key that is withdrawn is noticed within ten minutes, also where nobody brings another token."""
    await reception.takes(server.token(exp=int(NOW) + HOUR))
    taken = await reception.takes(server.token(exp=int(NOW) + HOUR))
    assert taken.until == NOW + LIFE.fresh
    assert taken.token.expires == NOW + HOUR + 30
    reception.passes(LIFE.fresh)
    server.keys(jwk(rsa_key("second"), "k2"))
    assert reception.cache.known(server.token(exp=int(NOW) + HOUR)) is None
    await reception.refuses(server.token(exp=int(NOW) + HOUR))


async def test_an_outage_locks_out_nobody_whose_key_is_known(
    server: AuthorizationServer, reception: Reception
) -> None:
    """For a day; the issuer is asked each minute meanwhile, and tokens stay known in between."""
    day = 24 * HOUR
    sent = server.token(exp=int(NOW) + 2 * day)
    await reception.takes(sent)
    server.answers[KEYS] = server.answers[OAUTH] = 503
    reception.passes(LIFE.fresh)
    with capture_logs() as logged:
        taken = await reception.takes(sent)
    assert taken.until == reception.clock.now + 60
    assert logged[0]["event"] == "the keys of an issuer could not be fetched"
    reception.passes(day - LIFE.fresh - 1)
    await reception.takes(sent)
    asked = len(server.asked)
    await reception.takes(sent)
    assert len(server.asked) == asked
    reception.passes(1)
    with pytest.raises(IssuerUnavailable) as unavailable:
        await reception.takes(sent)
    assert unavailable.value.retry_after == LIFE.pause_without_keys
    assert unavailable.value.http == 503


async def test_an_issuer_that_hangs_holds_nobody_up_for_long(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Whose key is known goes on with it; the answer counts when it comes."""
    sent = server.token(exp=int(NOW) + HOUR)
    await reception.takes(sent)
    reception.passes(LIFE.fresh)
    server.keys(jwk(rsa_key("second"), "k2"))
    server.begun.clear()
    server.go.clear()
    asking = [asyncio.ensure_future(reception.takes(sent)) for _ in range(3)]
    await server.begun.wait()
    for taken in await asyncio.gather(*asking):
        assert taken.until == reception.clock.now + 1
    server.go.set()
    assert await reception.takes(server.token(rsa_key("second"), "k2", exp=int(NOW) + HOUR))
    assert reception.cache.known(sent) is None


async def test_without_any_keys_it_is_the_issuer_who_is_missing(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Not the token that is bad: nobody has to sign in again."""
    server.answers[KEYS] = b"<html>"
    with pytest.raises(IssuerUnavailable):
        await reception.issuer.check(server.token())
    server.keys(jwk(rsa_key("first"), "k1"))
    reception.passes(LIFE.pause_without_keys)
    assert await reception.takes(server.token())


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://other.example", "jwks_uri": KEYS},
        {"jwks_uri": "http://keys.example/"},
        {"jwks_uri": 7},
        {},
    ],
)
async def test_keys_of_another_host_are_not_fetched(
    server: AuthorizationServer, reception: Reception, metadata: dict[str, Any]
) -> None:
    """Where the metadata is another issuer's, or names no place that may be asked."""
    if str(metadata.get("jwks_uri", "")).startswith("/"):
        metadata = {**metadata, "jwks_uri": server.url(KEYS)}
    server.answers[OAUTH] = {"issuer": server.issuer, **metadata}
    with pytest.raises(IssuerUnavailable):
        await reception.issuer.check(server.token())
    assert KEYS not in server.asked


async def test_keys_that_have_moved_are_found_again(
    server: AuthorizationServer, reception: Reception
) -> None:
    """When they are not where the metadata said, it is asked for again."""
    await reception.takes(server.token())
    server.answers[KEYS] = 404
    server.answers["/moved"] = document(jwk(rsa_key("second"), "k2"))
    server.answers[OAUTH] = {"issuer": server.issuer, "jwks_uri": server.url("/moved")}
    reception.passes(LIFE.fresh)
    new = server.token(rsa_key("second"), "k2", exp=int(NOW) + HOUR)
    await reception.refuses(new)
    reception.passes(LIFE.pause)
    assert await reception.takes(new)


async def test_a_redirect_is_no_key_set(server: AuthorizationServer) -> None:
    """Nobody is followed to another place."""
    server.answers["/redirect"] = 302
    with pytest.raises(IssuerUnavailable):
        await Reception(server, server.url("/redirect")).issuer.check(server.token())
    assert server.asked == ["/redirect"]
