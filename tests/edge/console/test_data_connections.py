"""The entries for MCP clients that the console shows: those of ``mcp-adapter install``, and no token."""

from __future__ import annotations

import orjson

from adapter.commands import install
from adapter.rules.clients.client_file import entry_text
from adapter.rules.clients.mcp_clients import CLIENTS, link_to
from adapter.settings.root import Settings
from tests.edge.consoling import AUTH, TOKENS, VIEWER, Shop, StartConsole, bearer
from tests.edge.test_console_data import READ

PUBLIC = {"public_base_url": "https://tools.example.com/"}


async def test_the_entries_are_those_that_the_command_writes(console: StartConsole) -> None:
    """For every client, under the public URL, with the token's variable or a placeholder."""
    async with console(Shop(READ), core={"auth": AUTH, **PUBLIC}) as (up, front, _):
        told = await front.get("/connect/raw", VIEWER)
        entry = {"id": "raw", "mount_path": "/mcp", "upstream": {"url": up.url}}
        settings = Settings.model_validate({"core": {"auth": AUTH, **PUBLIC}, "servers": [entry]})
    (address,) = install.addresses_of(settings, "raw", None)
    assert told["url"] == address.url == "https://tools.example.com/mcp"
    assert told["token"] == "MCP_ADAPTER_TOKEN" and not told["signs_in"]
    assert [each["id"] for each in told["clients"]] == list(CLIENTS)
    for each, client in zip(told["clients"], CLIENTS.values(), strict=True):
        assert each["text"] == entry_text(client.format, client.keys, address.name, client.entry(address))
        assert each["command"].startswith(
            f"mcp-adapter install {each['id']} --url https://tools.example.com/mcp"
        )
        assert each["link"] == link_to(each["id"], address)
        assert (each["placeholder"] is None) == client.expands
        assert each["placeholder"] is None or each["placeholder"] in each["text"]
    assert not [token for token in TOKENS.values() if token.encode() in orjson.dumps(told)]


async def test_the_entries_of_merged_mounts_are_there(console: StartConsole) -> None:
    """Those of each mount with the server, under its own name and address."""
    mounts = [{"id": "all", "servers": "*"}, {"id": "one", "path": "/one", "servers": ["raw"]}]
    async with console(Shop(READ), mounts=mounts) as (_, front, _):
        told = await front.get("/connect/raw")
    assert told["id"] == "raw" and told["url"].endswith("/mcp")
    base = f"http://127.0.0.1:{front.port}"
    assert [(each["id"], each["url"]) for each in told["merged"]] == [
        ("all", f"{base}/mcp/all"),
        ("one", f"{base}/one"),
    ]
    for each in told["merged"]:
        assert all(each["url"] in client["text"] for client in each["clients"])


async def test_without_a_public_url_the_address_is_the_one_that_the_reader_uses(
    console: StartConsole,
) -> None:
    """On loopback without tokens nothing stands for one; a server that is not there has no entries."""
    async with console(Shop(READ)) as (_, front, _):
        told = await front.get("/connect/raw")
        assert told["url"] == f"http://127.0.0.1:{front.port}/mcp" and told["token"] is None
        assert "TOKEN" not in str(told["clients"])
        head, _ = await front.ask("GET", "/connect/other", **bearer(None))
        assert head.status == 404
