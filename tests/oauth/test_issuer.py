"""JWTs of an issuer over sockets: which of them let somebody in, and what becomes of keys that come and go."""

from __future__ import annotations

import json
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from adapter.errors import IssuerUnavailable, Unauthorized
from adapter.oauth.discovery import issuer_metadata
from adapter.oauth.issuer import Issuer, IssuerTrust, Verification, VerifiedTokens, fetch_keys
from adapter.pipeline.key_set import FRESH, PAUSE, PAUSE_WITHOUT_KEYS, KeySet
from adapter.settings.auth import OAuthIssuer
from adapter.upstream.outgoing import IssuerHttp
from tests.oauth.authorization_server import KEYS, OAUTH, AuthorizationServer
from tests.pipeline.issuer import NOW, Clock, PrivateKey, document, jwk, rsa_key

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
            fetch_keys(http, issuer_metadata(http, server.issuer, self.seconds), jwks_url),
            structlog.get_logger(),
            self.seconds,
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


# --- who is not -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typ", ["logout+jwt", "secevent+jwt", "dpop+jwt", "oauth-authz-req+jwt", "x"])
async def test_a_token_of_another_type_is_refused(
    server: AuthorizationServer, reception: Reception, typ: str
) -> None:
    """Whoever signs several kinds of token tells them apart by it (RFC 8725 §3.11)."""
    assert await reception.refuses(signed(server, {"typ": typ})) == "The access token is no access token."


# --- keys that come and go --------------------------------------------------------------------------------------


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
    assert taken.until == NOW + FRESH
    assert taken.token.expires == NOW + HOUR + 30
    reception.passes(FRESH)
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
    reception.passes(FRESH)
    with capture_logs() as logged:
        taken = await reception.takes(sent)
    assert taken.until == reception.clock.now + 60
    assert logged[0]["event"] == "the keys of an issuer could not be fetched"
    reception.passes(day - FRESH - 1)
    await reception.takes(sent)
    asked = len(server.asked)
    await reception.takes(sent)
    assert len(server.asked) == asked
    reception.passes(1)
    with pytest.raises(IssuerUnavailable) as unavailable:
        await reception.takes(sent)
    assert unavailable.value.retry_after == PAUSE_WITHOUT_KEYS
    assert unavailable.value.http == 503


async def test_without_any_keys_it_is_the_issuer_who_is_missing(
    server: AuthorizationServer, reception: Reception
) -> None:
    """Not the token that is bad: nobody has to sign in again."""
    server.answers[KEYS] = b"<html>"
    with pytest.raises(IssuerUnavailable):
        await reception.issuer.check(server.token())
    server.keys(jwk(rsa_key("first"), "k1"))
    reception.passes(PAUSE_WITHOUT_KEYS)
    assert await reception.takes(server.token())


async def test_keys_that_have_moved_are_found_again(
    server: AuthorizationServer, reception: Reception
) -> None:
    """When they are not where the metadata said, it is asked for again."""
    await reception.takes(server.token())
    server.answers[KEYS] = 404
    server.answers["/moved"] = document(jwk(rsa_key("second"), "k2"))
    server.answers[OAUTH] = {"issuer": server.issuer, "jwks_uri": server.url("/moved")}
    reception.passes(PAUSE)
    new = server.token(rsa_key("second"), "k2", exp=int(NOW) + HOUR)
    await reception.refuses(new)
    reception.passes(PAUSE)
    assert await reception.takes(new)
