"""Access rules by scopes and claims, with tokens that a real issuer signed."""

from __future__ import annotations

from typing import Any

import orjson

from tests.edge.bearers import core, signed
from tests.edge.company import Person, office
from tests.edge.conftest import StartAdapter, StartUpstream
from tests.oauth.authorization_server import authorization_server


async def test_tokens_of_one_person_may_have_different_rights(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """In one session each request has the rights of its own token, also over HTTP, where lists are kept a while."""
    async with authorization_server() as server, upstream(office) as up:
        rules: list[dict[str, Any]] = [
            {"scopes": ["mcp"], "tools": ["read_*"]},
            {"scopes": ["mcp", "files.write"], "tools": ["write_*"]},
            {"claims": {"realm.groups": ["finance"]}, "tools": ["payroll_*"]},
            {"principals": [f"ann@{server.issuer}"], "prompts": ["greet"]},
        ]
        console = {"enabled": True, "allow_execute": True, "path": "/explorer"}
        async with (
            adapter(up, server={"access": rules}, core=core(server.issuer), console=console) as front,
            front.client() as client,
        ):
            plain = signed(server, sub="ann", scope="mcp")
            writer = signed(server, sub="ann", scope="mcp files.write")
            finance = signed(server, sub="ann", scope="mcp", realm={"groups": ["finance", "staff"]})
            person = Person(client, "", modern=False)
            person.fields = plain
            await person.open()
            for token, names in (
                (plain, ["read_file"]),
                (writer, ["read_file", "write_file"]),
                (finance, ["read_file", "payroll_show"]),
                (plain, ["read_file"]),
            ):
                person.fields = token
                assert await person.all("tools/list") == names
                assert await person.all("prompts/list") == ["greet"]
                for name in ("read_file", "write_file", "payroll_show"):
                    assert ("result" in await person.call(name)) is (name in names)
                _, body = await client.request("GET", b"", "/explorer/raw/tools", **token)
                assert [each["name"] for each in orjson.loads(body)] == names
                for name in ("write_file", "payroll_show"):
                    path = f"/explorer/raw/tools/{name}/call"
                    head, _ = await client.request("POST", b"{}", path, **token)
                    assert head.status == (200 if name in names else 404)
