"""Signing in from a command: in the browser, once, and renewed from what is kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from adapter.commands.client.session import sign_in_at
from adapter.commands.client.terminal import Terminal
from adapter.upstream.client_connection import ServerRefused, sign_in_again
from tests.commands.client.speaking import run
from tests.commands.signing import CLIENT, approving, register
from tests.oauth.token_serving import ProtectedUpstream, TokenServer


async def test_a_person_signs_in_once(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """The tokens are kept where only their owner reads them, and used by the next command."""
    opens = approving(tmp_path)
    register(tokens)
    for _ in range(2):
        done = await run(tmp_path, "tools", protected.url, BROWSER=opens)
        assert (done.returncode, done.stdout) == (0, "tool_t1\n"), done.stderr
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert [form.get("code") for form in tokens.forms] == [None, "c1"]
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    kept = json.loads(file.read_text())
    assert (kept["url"], kept["tokens"]["access_token"]) == (protected.url, "t1")


async def test_a_sign_in_is_renewed(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """By its authorization server, without a browser."""
    register(tokens)
    first = {"access_token": "t1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r1"}
    tokens.answers.append((200, first))
    assert (await run(tmp_path, "tools", protected.url, BROWSER=approving(tmp_path))).returncode == 0
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"expires": 1}))
    protected.accept("t9")
    tokens.answers.append((200, {"access_token": "t9", "token_type": "Bearer", "expires_in": 3600}))
    done = await run(tmp_path, "tools", protected.url)
    assert (done.returncode, done.stdout) == (0, "tool_t9\n"), done.stderr
    assert (tokens.forms[-1]["grant_type"], tokens.forms[-1]["refresh_token"]) == ("refresh_token", "r1")
    assert json.loads(file.read_text())["tokens"]["refresh_token"] == "r1"


async def test_commands_at_once_sign_in_and_renew_once(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """The others use what the first one obtains: a refresh token that is used twice may end the sign-in."""
    opens = approving(tmp_path)
    register(tokens)
    granted = {"access_token": "t1", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r1"}
    for token, refresh in (("t1", "r1"), ("t9", "r2")):
        protected.accept(token)
        tokens.answers.append((200, granted | {"access_token": token, "refresh_token": refresh}))
        done = await asyncio.gather(*(run(tmp_path, "tools", protected.url, BROWSER=opens) for _ in range(3)))
        assert [each.stdout for each in done] == 3 * [f"tool_{token}\n"], [each.stderr for each in done]
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert [form.get("refresh_token") for form in tokens.forms] == [None, None, "r1"]
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
    assert json.loads(file.read_text())["tokens"]["refresh_token"] == "r2"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("refresh", ["r1", None])
async def test_a_client_that_is_forgotten_registers_anew(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer, refresh: str | None
) -> None:
    """Once: whether renewing shows it, or only the code of a person who has signed in."""
    opens = approving(tmp_path)
    register(tokens)
    granted = {"access_token": "t1", "token_type": "Bearer", "refresh_token": refresh}
    tokens.answers.append((200, granted))
    assert (await run(tmp_path, "tools", protected.url, BROWSER=opens)).returncode == 0
    protected.accept("t9")
    tokens.answers.append((401, {"error": "invalid_client"}))
    tokens.answers.append((201, CLIENT | {"client_id": "new"}))
    tokens.answers.append((200, granted | {"access_token": "t9"}))
    done = await run(tmp_path, "tools", protected.url, BROWSER=opens)
    assert (done.returncode, done.stdout) == (0, "tool_t9\n"), done.stderr
    assert [form["client_id"] for form in tokens.forms if "client_id" in form] == ["c", "c", "new"]
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
    assert json.loads(file.read_text())["client"]["client_id"] == "new"
    # A new one that is unknown as well is an error.
    protected.accept("t10")
    refusal = (401, {"error": "invalid_client"})
    tokens.answers += [refusal, (201, CLIENT), refusal]
    done = await run(tmp_path, "tools", protected.url, BROWSER=opens)
    assert done.returncode == 1 and "invalid_client" in done.stderr
    assert "client" not in json.loads(file.read_text()) and file.stat().st_mode & 0o777 == 0o600


async def test_who_waits_in_vain_is_told_which_file_to_remove(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the client is not a new one: where its server has forgotten it, only the browser says so."""
    register(tokens)
    assert (await run(tmp_path, "tools", protected.url, BROWSER=approving(tmp_path))).returncode == 0
    (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
    monkeypatch.setattr("adapter.upstream.client_sign_in.PATIENCE", 0.1)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ".local/share"))
    monkeypatch.setenv("BROWSER", "true")
    for _ in range(2):
        with pytest.raises(ServerRefused) as refused:
            sign_in = sign_in_at(protected.url, Terminal())
            await sign_in_again(sign_in, protected.url, 401, protected.challenge, "t1", renews=True)
        assert (
            f"within 0.1 s: if the browser says that the client is unknown, remove {file} and"
            in str(refused.value)
        ) == file.exists()
        file.unlink(missing_ok=True)
        register(tokens)


async def test_who_does_not_agree_is_told(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """In one sentence, without control characters, and nothing is kept."""
    register(tokens)
    opens = approving(tmp_path, '"error": "access_denied", "error_description": "no\\x1b[2J"')
    done = await run(tmp_path, "tools", protected.url, BROWSER=opens)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"Signing in for {protected.url} failed: the authorization server refuses: no\\u001b[2J."
        in done.stderr
    )
    assert "Traceback" not in done.stderr and not [*tmp_path.rglob("*.json")]


async def test_a_file_of_somebody_else_is_no_sign_in(
    tmp_path: Path, protected: ProtectedUpstream, tokens: TokenServer
) -> None:
    """It is written anew."""
    opens = approving(tmp_path)
    for _ in range(2):
        register(tokens)
        done = await run(tmp_path, "tools", protected.url, BROWSER=opens)
        assert done.returncode == 0, done.stderr
        protected.accept(f"t{len(tokens.issued) + 1}")
        (file,) = (tmp_path / ".local/share/mcp-adapter/sign-ins").glob("*.json")
        file.write_text('{"tokens": 5}')
