"""The eras that a server is found to speak: what decides them, and what a client cannot make of them."""

from __future__ import annotations

import orjson
import pytest

from adapter.wire.eras import Era
from tests.edge.conftest import StartRoad, done
from tests.edge.modern_upstream import DISCOVERED, answer, refuse
from tests.edge.raw import Exchange, Script, answering, initialize_result, modern_body, modern_fields

BOTH = {Era.LEGACY, Era.MODERN}
JSON = "Content-Type: application/json"


def is_modern(exchange: Exchange) -> bool:
    return exchange.head.get("mcp-protocol-version") == "2026-07-28"


async def discovered(exchange: Exchange) -> None:
    await exchange.json(orjson.dumps(answer(exchange, result=DISCOVERED)))


async def hung_up(exchange: Exchange) -> None:
    exchange.hang_up()


def failing(code: int, status: int) -> Script:
    """Answers with an error of JSON-RPC."""

    async def script(exchange: Exchange) -> None:
        error = {"code": code, "message": "No"}
        await exchange.answer(status, orjson.dumps(answer(exchange, error=error)), JSON)

    return script


def discovering(script: Script) -> Script:
    """A legacy server that answers ``server/discover`` so, and refuses the calls of modern clients."""

    async def serve(exchange: Exchange) -> None:
        if exchange.message.get("method") == "server/discover":
            await script(exchange)
        else:
            await (refuse if is_modern(exchange) else done)(exchange)

    return serve


@pytest.mark.parametrize(
    "said",
    [
        answering(401, b""),
        answering(403, b""),
        answering(404, b"gone"),
        answering(429, b""),
        answering(503, b""),
        failing(-32603, 200),
        failing(-32001, 404),
        answering(200, b"", JSON),
        hung_up,
    ],
    ids=["401", "403", "404", "429", "503", "internal", "session", "nothing", "hung up"],
)
async def test_no_era_is_taken_away_by_an_answer_that_says_nothing_of_it(
    road: StartRoad, said: Script
) -> None:
    """A ``server/discover`` that failed leaves it open whether the server knows it."""
    async with road(discovering(said)) as (up, front, client):
        await client.modern_call()
        assert up.calls("server/discover") and front.app.servers["raw"].eras == frozenset()
    async with road(discovering(said)) as (up, front, client):
        front.app.servers["raw"].eras = frozenset(BOTH)
        await client.modern_call()
        assert up.calls("server/discover") and front.app.servers["raw"].eras == BOTH


@pytest.mark.parametrize(
    "said",
    [
        answering(400, b"Bad Request: Unsupported protocol version"),
        failing(-32601, 200),
        failing(-32602, 404),
    ],
    ids=["plain", "unknown method", "invalid params"],
)
async def test_a_clear_refusal_says_that_there_is_one_era(road: StartRoad, said: Script) -> None:
    """The words of legacy servers for a request that they do not know."""
    async with road(discovering(said)) as (_, front, client):
        assert (await client.modern_call())[0].status == 200
        assert front.app.servers["raw"].eras == {Era.LEGACY}


async def test_a_client_cannot_choose_who_answers_for_the_server(road: StartRoad) -> None:
    """What is asked for the eras has neither the fields nor the query of the client whose request was refused."""

    async def both(exchange: Exchange) -> None:
        if exchange.head.get("x-canary") is not None or "?" in exchange.head.first:
            await refuse(exchange) if is_modern(exchange) else await done(exchange)
        elif exchange.message.get("method") == "server/discover":
            await discovered(exchange)
        else:
            await refuse(exchange)

    more = {"server": {"upstream": {"client_headers": {"passthrough": ["X-Canary"]}}}}
    async with road(both, **more) as (up, front, client):
        fields = {**modern_fields(), "x_canary": "yes"}
        head, _ = await client.request("POST", modern_body(), "/mcp?v=1", **fields)
        assert head.status == 400 and front.app.servers["raw"].eras == BOTH
        asked = up.calls("server/discover")
        assert [(each.head.get("x-canary"), "?" in each.head.first) for each in asked] == [(None, False)]


@pytest.mark.parametrize("length", [20, 5000])
async def test_a_server_that_wants_credentials_is_asked_with_those_of_the_client(
    road: StartRoad, length: int
) -> None:
    """With its Authorization and nothing else, unless that is so long that only some requests have room for it."""
    legacy = discovering(failing(-32601, 200))

    def guarded(script: Script) -> Script:
        async def serve(exchange: Exchange) -> None:
            refused = exchange.head.get("authorization") is None
            await (answering(401, b"") if refused else script)(exchange)

        return serve

    async def opening(exchange: Exchange) -> None:
        await exchange.json(initialize_result(exchange.message["id"]))

    more = {"server": {"upstream": {"client_headers": {"passthrough": ["Authorization"]}}}}
    async with road(guarded(legacy), opening=guarded(opening), **more) as (_, front, client):
        fields = {**modern_fields(), "authorization": f"Bearer {'t' * length}"}
        head, _ = await client.request("POST", modern_body(), **fields)
        assert head.status == (200 if length < 4096 else 400)
        assert front.app.servers["raw"].eras == ({Era.LEGACY} if length < 4096 else frozenset())
