"""``mcp-adapter grants`` as an operator uses it, beside an adapter that serves."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import yaml

from tests.commands.running import mcp_adapter
from tests.edge.granting import BASE, TOKENS, Scene, StartScene

SECRET = "a-secret-of-thirty-two-characters!"


def configure(place: Path, it: Scene, secret: str = SECRET) -> None:
    text = {
        "core": {
            "public_base_url": BASE,
            "secret": secret,
            "auth": {"enabled": True, "tokens": [{"name": "alice", "token": TOKENS["alice"]}]},
        },
        "storage": {"root": str(place)},
        "servers": [
            {
                "id": "raw",
                "mount_path": "/mcp",
                "upstream": {"url": it.upstream.url, "auth": {"type": "authorization_code"}},
            }
        ],
    }
    (place / "config.yaml").write_text(yaml.safe_dump(text))


async def ran(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(mcp_adapter, place, "grants", *arguments, "--config", "config.yaml")


async def test_grants_are_listed_and_revoked(scene: StartScene, tmp_path: Path) -> None:
    """The running adapter asks the person anew, a few seconds later at most."""
    async with scene(core={"secret": SECRET}) as it:
        configure(tmp_path, it)
        assert (await ran(tmp_path, "list")).stdout == "no grants\n"
        await it.grant("alice")
        listed = await ran(tmp_path, "list")
        assert "alice" in listed.stdout, listed.stderr
        (found,) = json.loads((await ran(tmp_path, "list", "raw", "--json")).stdout)
        assert found["principal"] == "alice"
        assert (await ran(tmp_path, "revoke", "raw", "mallory")).returncode == 1
        revoked = await ran(tmp_path, "revoke", "raw", "alice")
        assert (revoked.returncode, "revoked at its issuer" in revoked.stdout) == (0, True)
        assert len(it.issuer.revoked) == 1
        assert (await ran(tmp_path, "list")).stdout == "no grants\n"


async def test_a_grant_under_another_secret_can_be_forgotten(scene: StartScene, tmp_path: Path) -> None:
    """What cannot be opened is still listed, and goes."""
    async with scene(core={"secret": SECRET}) as it:
        configure(tmp_path, it, secret="another-secret-of-thirty-two-chars")
        await it.grant("alice")
        assert "cannot be opened" in (await ran(tmp_path, "list")).stdout
        assert "was forgotten" in (await ran(tmp_path, "revoke", "raw", "all")).stdout
        assert (await ran(tmp_path, "list")).stdout == "no grants\n"


def test_servers_without_grants(tmp_path: Path) -> None:
    """A sentence says that there is nothing to list."""
    text = {"servers": [{"id": "a", "upstream": {"url": "http://127.0.0.1:9/mcp"}}]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(text))
    done = mcp_adapter(tmp_path, "grants", "list", "--config", "config.yaml")
    assert done.returncode == 2
    assert "authorization_code" in done.stderr
