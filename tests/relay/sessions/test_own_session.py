"""The adapter's own visits to upstreams: sessions of either era, and lists of tools to their last page."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import orjson
import pytest

from adapter import log
from adapter.errors import UpstreamBroken
from adapter.relay.param_headers import ParamHeaders
from adapter.relay.server import Server, TransferRules
from adapter.relay.sessions.own_session import OwnSession
from adapter.relay.tools.catalogue_reader import all_tools
from adapter.relay.tools.tool_lists import ToolLists
from adapter.rules.tools.definitions import Tool
from adapter.rules.tools.tool_pages import BOUNDS, ListLimits
from adapter.rules.tools.visibility import ShapedDefinition
from adapter.upstream.http import HttpUpstream
from adapter.wire.eras import Era
from tests.edge.raw import Exchange, RawUpstream, Script


@contextlib.asynccontextmanager
async def visiting(
    script: Script, opening: Script | None = None
) -> AsyncIterator[tuple[OwnSession, RawUpstream]]:
    """A visit that has been opened, and the upstream it is to; closed when the block ends."""
    async with RawUpstream(script, opening=opening) as raw:
        upstream = HttpUpstream(raw.url)
        visit = OwnSession(
            Server("one", "/one", upstream, rules=TransferRules(static=(("X-Key", "k"),))), 5.0
        )
        try:
            await visit.open()
            yield visit, raw
            await visit.close()
        finally:
            await upstream.close()


async def tools_of(visit: OwnSession, limits: ListLimits = BOUNDS) -> list[Tool] | None:
    lists = ToolLists(
        "one", lambda _, raw: ShapedDefinition(raw), (), ParamHeaders(), log.get_logger("test"), limits
    )

    async def fetch(method: str, params: dict[str, object]) -> bytes | None:
        return (await visit.ask(method, params)).response

    return await all_tools(lists, fetch)


def listed(exchange: Exchange, *names: str, cursor: str | None = None) -> bytes:
    """The response with tools of these names, and where the list goes on."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    result = {"tools": tools, **({"nextCursor": cursor} if cursor else {})}
    return orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": result})


def cursor_of(exchange: Exchange) -> object:
    params = exchange.message["params"]
    assert isinstance(params, dict)
    return params.get("cursor")


async def two_pages(exchange: Exchange) -> None:
    """Answers the second page as an event, as servers may."""
    if cursor_of(exchange) is None:
        await exchange.json(listed(exchange, "a", "b", cursor="next"))
        return
    await exchange.begin_stream()
    await exchange.chunk(b"data: " + listed(exchange, "c") + b"\n\n")
    await exchange.end_stream()


async def refuse_initialize(exchange: Exchange) -> None:
    await exchange.answer(400, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"modern"}}')


async def test_all_pages_are_read_in_a_session_that_is_closed() -> None:
    """Every request carries the static headers and the visit's own session, of which nothing is left."""
    async with visiting(two_pages) as (visit, raw):
        assert visit.era is Era.LEGACY
        assert [tool.name for tool in await tools_of(visit) or ()] == ["a", "b", "c"]
        asked = [exchange.head for exchange in raw.calls("tools/list")]
        assert [head["mcp-session-id"] for head in asked] == ["upstream-1"] * 2
        assert {exchange.head["x-key"] for exchange in raw.seen} == {"k"}
    assert raw.sessions == set()


async def test_a_modern_upstream_is_asked_in_its_own_way() -> None:
    """Without a session, with the headers and the _meta that its era wants of every request."""

    async def script(exchange: Exchange) -> None:
        if exchange.message["method"] == "server/discover":
            await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "result": {}}))
        else:
            await two_pages(exchange)

    async with visiting(script, refuse_initialize) as (visit, raw):
        assert visit.era is Era.MODERN
        assert [tool.name for tool in await tools_of(visit) or ()] == ["a", "b", "c"]
        last = raw.calls("tools/list")[-1]
        assert (last.head["mcp-method"], last.head["mcp-protocol-version"]) == ("tools/list", "2026-07-28")
        assert b'"io.modelcontextprotocol/protocolVersion":"2026-07-28"' in last.body
    assert raw.calls("DELETE") == []


@pytest.mark.parametrize("status", [200, 404])
async def test_a_server_without_tools_has_none(status: int) -> None:
    """That it does not know the method is an answer, under either status."""

    async def script(exchange: Exchange) -> None:
        error = {"code": -32601, "message": "no such method"}
        body = orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error})
        await exchange.answer(status, body, "Content-Type: application/json")

    async with visiting(script) as (visit, _):
        assert await tools_of(visit) == []


async def test_no_whole_list_is_no_list() -> None:
    """An error on a later page, and a list that never ends or is too long, are not taken for all there is."""

    async def breaks(exchange: Exchange) -> None:
        if cursor_of(exchange) is None:
            await exchange.json(listed(exchange, "a", cursor="next"))
        else:
            await exchange.answer(500, b"")

    async def endless(exchange: Exchange) -> None:
        await exchange.json(listed(exchange, cursor="again"))

    async def long(exchange: Exchange) -> None:
        place = int(str(cursor_of(exchange) or 0))
        await exchange.json(listed(exchange, f"a{place}", f"b{place}", cursor=str(place + 1)))

    async with visiting(breaks) as (visit, _):
        assert await tools_of(visit) is None
    for script, why in ((endless, "form a loop"), (long, "and 10 tools")):
        async with visiting(script) as (visit, raw):
            with pytest.raises(UpstreamBroken, match=why):
                await tools_of(visit, ListLimits(tools=10))
            assert len(raw.calls("tools/list")) <= 6


async def test_a_refusal_for_want_of_credentials_opens_nothing() -> None:
    """Who asks is told the status, and that there is no session to ask in."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(401, b"")

    async with visiting(refuse, refuse) as (visit, _):
        assert not visit.is_open
        assert await visit.open() == 401
