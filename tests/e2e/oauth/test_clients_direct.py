"""The official clients sign in at a protected FastMCP without the adapter: what the tests through it rest on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.oauth.authorization_server import authorization_server
from tests.e2e.oauth.protection import Command, protected_server, signed_in

pytestmark = pytest.mark.e2e

CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "python_v2 2026-07-28",
    "fastmcp4",
    "ts_v1",
    "ts_v2 legacy",
    "ts_v2 2026-07-28",
)


async def test_every_client_signs_its_person_in(
    command: Command, oauth_programs: None, fastmcp4_python: Path, tmp_path: Path
) -> None:
    """Each client finds the authorization server by the 401, registers, signs in, and calls as its person."""
    async with (
        authorization_server(tmp_path) as issuer,
        protected_server(fastmcp4_python, tmp_path, issuer) as url,
    ):
        for name in CLIENTS:
            async with signed_in(command, name, "ada", url, tmp_path) as client:
                told = await client.ask("call", tool="whoami", arguments={})
                assert told == {"step": "call", "ok": True, "text": "ada"}, name
