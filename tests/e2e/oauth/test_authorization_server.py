"""The authorization server of the tests does what the tests of the adapter rest on."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest

from tests.e2e.oauth.authorization_server import EXCHANGE, SERVICE, authorization_server

pytestmark = pytest.mark.e2e

RESOURCE = "http://127.0.0.1:1/mcp"


async def test_a_token_names_its_person_and_resource(oauth_programs: None, tmp_path: Path) -> None:
    """A person signs in by code and PKCE: a JWT for the resource; another one by its refresh token."""
    async with authorization_server(tmp_path) as server:
        answer = await server.tokens("ada", RESOURCE)
        said = claims(answer["access_token"])
        assert (said["iss"], said["sub"], said["aud"]) == (server.issuer, "ada", RESOURCE)
        assert (said["scope"], said["groups"]) == ("mcp", ["staff", "operators"])
        form = {
            "grant_type": "refresh_token",
            "client_id": answer["client_id"],
            "refresh_token": answer["refresh_token"],
        }
        refreshed = await server.ask("/token", form)
        assert refreshed["refresh_token"] != answer["refresh_token"]
        assert claims(refreshed["access_token"])["sub"] == "ada"
        assert (await server.ask("/token", form))["error"] == "invalid_grant"


async def test_a_service_gets_tokens_and_exchanges_those_of_people(
    oauth_programs: None, tmp_path: Path
) -> None:
    """Client credentials name the client; an exchanged token names the person, for another resource."""
    async with authorization_server(tmp_path) as server:
        assert claims(await server.service_token(RESOURCE))["sub"] == SERVICE["client_id"]
        form = {
            "grant_type": EXCHANGE,
            "subject_token": await server.token("bob", RESOURCE),
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "resource": "http://127.0.0.1:2/mcp",
            "scope": "mcp",
        }
        answer = await server.ask("/token", form, client=SERVICE)
        said = claims(answer["access_token"])
        assert (said["sub"], said["aud"]) == ("bob", "http://127.0.0.1:2/mcp")
        forged = {**form, "subject_token": form["subject_token"][:-8] + "AAAAAAAA"}
        assert (await server.ask("/token", forged, client=SERVICE))["error"] == "invalid_grant"


async def test_opaque_tokens_are_known_until_they_are_revoked(oauth_programs: None, tmp_path: Path) -> None:
    """Introspection tells the person of an opaque token, and that a revoked one is not active."""
    async with authorization_server(tmp_path, opaque=True) as server:
        answer = await server.tokens("bob", RESOURCE)
        form = {"token": answer["access_token"]}
        told = await server.ask("/token/introspection", form, client=SERVICE)
        assert (told["active"], told["sub"], told["aud"]) == (True, "bob", RESOURCE)
        await server.ask("/token/revocation", {**form, "client_id": answer["client_id"]})
        assert not (await server.ask("/token/introspection", form, client=SERVICE))["active"]


def claims(token: str) -> dict[str, object]:
    """The claims of a JWT that this test has from its issuer itself."""
    told: dict[str, object] = jwt.decode(token, options={"verify_signature": False})
    return told
