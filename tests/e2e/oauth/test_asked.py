"""An upstream that asks people to sign in: each command names the setting for it, and ``wrap --oauth`` serves it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.commands.running import mcp_adapter
from tests.e2e.clients.browser import Browser
from tests.e2e.filing import curl, python_host
from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.protection import protected_server
from tests.e2e.processes import adapter
from tests.e2e.test_doctor import doctor, settings
from tests.e2e.test_wrap import running
from tests.oauth.protected import answer
from tests.oauth.token_serving import ProtectedUpstream

pytestmark = pytest.mark.e2e

CURE = "upstream.auth.type: authorization_code"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/authorize/[\w/-]+")


@pytest.fixture
async def upstream() -> AsyncIterator[ProtectedUpstream]:
    """It refuses everybody, and names its metadata."""
    async with ProtectedUpstream(answer) as raw:
        raw.protect("nobody's")
        yield raw


@pytest.mark.parametrize("names_metadata", [True, False])
async def test_commands_name_the_setting(
    names_metadata: bool, tmp_path: Path, upstream: ProtectedUpstream
) -> None:
    """``check``, ``doctor`` and ``wrap`` say that people sign in there; of one that only wants a token they do not."""
    if not names_metadata:
        upstream.challenge = "Bearer"
    config = settings(tmp_path, upstream.url)
    checked = await asyncio.to_thread(mcp_adapter, tmp_path, "check", "--connect", "--config", config)
    assert checked.stdout.startswith("upstream: requires credentials (HTTP status 401): ")
    examined = await doctor(config)
    wrapped = await asyncio.to_thread(mcp_adapter, tmp_path, "wrap", "--port", "0", upstream.url)
    assert (checked.returncode, examined.status, wrapped.returncode) == (0, 1, 1)
    assert (CURE in checked.stdout) == names_metadata, checked.stdout
    assert ("static_headers" in checked.stdout) != names_metadata, checked.stdout
    assert examined.says(CURE) == names_metadata, examined
    assert ("--oauth" in wrapped.stderr) == names_metadata, wrapped.stderr
    assert ("--header" in wrapped.stderr) != names_metadata, wrapped.stderr


async def test_doctor_knows_the_adapters_own_challenge(tmp_path: Path, upstream: ProtectedUpstream) -> None:
    """A token that the adapter refuses says nothing about the upstream, though its challenge names metadata too."""
    issuer = {"issuer": "https://login.example", "jwks_url": "https://login.example/jwks"}
    core = {"auth": {"oauth": {"issuers": [issuer]}}, "public_base_url": "https://tools.example"}
    async with adapter(tmp_path, upstream.url, core=core) as front:
        found = await doctor(tmp_path / "adapter.json", "--port", str(front.port), "--token", "another")
        assert found.says("needs a token, or refuses this one") and not found.says(CURE), found


async def test_health_names_the_setting(tmp_path: Path, upstream: ProtectedUpstream) -> None:
    """Beside the words of the upstream, for those who have a token."""
    async with adapter(tmp_path, upstream.url) as front:
        (told,) = json.loads((await curl(f"{front.base}/healthz")).body)["servers"]
        assert told["detail"] == "upstream_refuses_adapter" and CURE in told["hint"], told


async def test_wrap_serves_a_server_at_which_people_sign_in(
    oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """The first call is answered with a link; when somebody has signed in there, the server's tools are listed."""
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as upstream,
        running(tmp_path, "--port", "0", "--oauth", "--save", "saved.yaml", upstream) as wrapped,
    ):
        assert "Any first call is answered with the link" in wrapped.text, wrapped.text
        (told,) = [
            line.split() for line in wrapped.text.splitlines() if line.startswith("  mcp-adapter tools ")
        ]
        asked = await asyncio.to_thread(mcp_adapter, tmp_path, *told[1:])
        assert LINK.search(asked.stderr), asked
        with pytest.raises(Exception) as refused:
            async with python_host(wrapped.url) as host:
                await host.tools()
        link = LINK.search(words_of(refused.value))
        assert link is not None and link[0].startswith(wrapped.url.partition("/mcp/")[0])
        assert "Access given" in (await asyncio.to_thread(Browser("ada").visit, link[0])).text
        async with python_host(wrapped.url) as host:
            assert await host.tools() == ["whoami", "echo", "ticket"]
    saved = await asyncio.to_thread(mcp_adapter, tmp_path, "check", "--config", "saved.yaml")
    assert saved.returncode == 0, saved


def words_of(error: BaseException) -> str:
    """The text of an error and of those in it, with the data that came with them."""
    inner = getattr(error, "exceptions", ())
    return " ".join([f"{error} {getattr(error, 'error', '')}", *map(words_of, inner)])
