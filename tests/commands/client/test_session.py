"""Signing in from a command: in the browser, once, and renewed from what is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.commands.client.speaking import browser, run
from tests.oauth.protected import answer
from tests.oauth.token_serving import ProtectedUpstream, TokenServer, token_server

APPROVE = """
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen
asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
open("asked", "a").write(url + "\\n")
back = asked["redirect_uri"] + "?"
try:
    urlopen(back + urlencode({"code": "of somebody else", "state": "guessed"}))
except OSError as refused:
    assert "404" in str(refused)
urlopen(back + urlencode({"state": asked["state"], ANSWER}))
"""
"""A browser whose person agrees, once somebody else has tried."""


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with token_server() as server:
        server.documents["/.well-known/oauth-authorization-server"] = {
            "issuer": server.origin,
            "authorization_endpoint": f"{server.origin}/authorize",
            "token_endpoint": server.url,
            "registration_endpoint": f"{server.origin}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        yield server


@pytest.fixture
async def upstream(tokens: TokenServer) -> AsyncIterator[ProtectedUpstream]:
    async with ProtectedUpstream(answer) as server:
        server.protect("t1")
        place = "/.well-known/oauth-protected-resource"
        server.documents[place] = {"resource": server.url, "authorization_servers": [tokens.origin]}
        server.challenge = f'Bearer resource_metadata="{server.url.removesuffix("/mcp")}{place}"'
        yield server


def approving(place: Path, parameter: str = '"code": "c1"') -> str:
    return browser(place, APPROVE.replace("ANSWER", parameter))


def register(tokens: TokenServer) -> None:
    client = {"client_id": "c", "redirect_uris": [], "token_endpoint_auth_method": "none"}
    tokens.answers.append((201, client))


async def test_a_person_signs_in_once(
    tmp_path: Path, upstream: ProtectedUpstream, tokens: TokenServer
) -> None:
    """The tokens are kept where only their owner reads them, and used by the next command."""
    opens = approving(tmp_path)
    register(tokens)
    for _ in range(2):
        done = await run(tmp_path, "tools", upstream.url, BROWSER=opens)
        assert (done.returncode, done.stdout) == (0, "tool_t1\n"), done.stderr
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert [form.get("code") for form in tokens.forms] == [None, "c1"]
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    kept = json.loads(file.read_text())
    assert (kept["url"], kept["tokens"]["access_token"]) == (upstream.url, "t1")


async def test_a_sign_in_is_renewed(tmp_path: Path, upstream: ProtectedUpstream, tokens: TokenServer) -> None:
    """By its authorization server, without a browser."""
    register(tokens)
    first = {"access_token": "t1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r1"}
    tokens.answers.append((200, first))
    assert (await run(tmp_path, "tools", upstream.url, BROWSER=approving(tmp_path))).returncode == 0
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires": 1}))
    upstream.accept("t9")
    tokens.answers.append((200, {"access_token": "t9", "token_type": "Bearer", "expires_in": 3600}))
    done = await run(tmp_path, "tools", upstream.url)
    assert (done.returncode, done.stdout) == (0, "tool_t9\n"), done.stderr
    assert (tokens.forms[-1]["grant_type"], tokens.forms[-1]["refresh_token"]) == ("refresh_token", "r1")
    assert json.loads(file.read_text())["tokens"]["refresh_token"] == "r1"


async def test_who_does_not_agree_is_told(
    tmp_path: Path, upstream: ProtectedUpstream, tokens: TokenServer
) -> None:
    """In one sentence, without control characters, and nothing is kept."""
    register(tokens)
    opens = approving(tmp_path, '"error": "access_denied", "error_description": "no\\x1b[2J"')
    done = await run(tmp_path, "tools", upstream.url, BROWSER=opens)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"Signing in for {upstream.url} failed: the authorization server refuses: no\\u001b[2J."
        in done.stderr
    )
    assert "Traceback" not in done.stderr and not (tmp_path / ".local").exists()


async def test_a_file_of_somebody_else_is_no_sign_in(
    tmp_path: Path, upstream: ProtectedUpstream, tokens: TokenServer
) -> None:
    """It is written anew."""
    opens = approving(tmp_path)
    for _ in range(2):
        register(tokens)
        done = await run(tmp_path, "tools", upstream.url, BROWSER=opens)
        assert done.returncode == 0, done.stderr
        upstream.accept(f"t{len(tokens.issued) + 1}")
        (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").iterdir()
        file.write_text('{"tokens": 5}')
