"""Pings, breakers and what health tells of them, with upstreams that die, hang, come late or speak one era."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.app import build, running
from adapter.settings.root import Settings
from tests.edge.conftest import Adapter, done
from tests.edge.raw import INITIALIZE, Exchange, RawUpstream, call_body, error_of, result

PING = {
    "interval_seconds": 0.02,
    "timeout_seconds": 0.2,
    "failure_threshold": 2,
    "open_cooldown_seconds": 0.02,
}


@contextlib.asynccontextmanager
async def serving(root: Path, urls: dict[str, str], **core: object) -> AsyncIterator[Adapter]:
    """The adapter with one server per URL, at ``/<id>``, pinged every 20 ms."""
    settings = {
        "core": {"port": 0, "shutdown_grace_seconds": 0, "upstream_ping": PING, **core},
        "storage": {"root": str(root)},
        "servers": [
            {"id": name, "mount_path": f"/{name}", "upstream": {"url": url}} for name, url in urls.items()
        ],
    }
    app = build(Settings.model_validate(settings))
    async with running(app) as (_, port):
        yield Adapter(app, port)


async def ask(front: Adapter, path: str, **fields: str) -> tuple[int, dict[str, Any]]:
    async with front.client() as client:
        head, body = await client.request("GET", b"", path, **fields)
        return head.status, orjson.loads(body)


async def health_when(front: Adapter, holds: Callable[[dict[str, Any]], bool]) -> tuple[int, dict[str, Any]]:
    """Status and body of the first ``/healthz`` of which ``holds`` is true."""
    async with asyncio.timeout(20):
        while True:
            status, body = await ask(front, "/healthz")
            if holds(body):
                return status, body
            await asyncio.sleep(0.005)


def is_ok(body: dict[str, Any]) -> bool:
    return bool(body["status"] == "ok")


def breaker_is_open(body: dict[str, Any], number: int = 0) -> bool:
    return bool(body["servers"][number]["breaker"]["state"] == "open")


@pytest.fixture
async def hanging() -> AsyncIterator[str]:
    """The URL of an upstream that accepts connections and never answers."""
    writers: set[asyncio.StreamWriter] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    server.close()
    for writer in writers:
        writer.transport.abort()
    await server.wait_closed()


# --- pings ----------------------------------------------------------------------------------------------------


async def test_pings_have_a_session_of_their_own_that_is_closed_at_stop(tmp_path: Path) -> None:
    """One session for all pings, none of a client's; nothing is left upstream when the adapter has stopped."""
    async with RawUpstream(done) as up:
        async with serving(tmp_path, {"raw": up.url}) as front, front.client() as client:
            await up.arrived("ping")
            probing = up.calls("ping")[0].head["mcp-session-id"]
            await client.initialize(path="/raw")
            await client.request("POST", call_body(), path="/raw")
            assert up.calls("tools/call")[0].head["mcp-session-id"] != probing
            assert {ping.head["mcp-session-id"] for ping in up.calls("ping")} == {probing}
            assert up.opened == 2
            await client.request("DELETE", path="/raw")
        assert up.sessions == set()


async def test_breaker_opens_after_the_threshold_and_closes_again(tmp_path: Path) -> None:
    """Calls are refused while it is open, and the session that was open goes on when the upstream is back."""
    async with (
        RawUpstream(done) as up,
        serving(tmp_path, {"raw": up.url}) as front,
        front.client() as client,
    ):
        await health_when(front, is_ok)
        await client.initialize(path="/raw")
        await up.stop()
        status, body = await health_when(front, breaker_is_open)
        assert status == 503 and body["degraded_reason"] == "upstream_unhealthy"
        assert body["servers"][0]["status"] == "degraded"
        assert body["servers"][0]["detail"] == "upstream_unhealthy"
        assert body["servers"][0]["breaker"]["consecutive_failures"] >= 2
        head, text = await client.request("POST", call_body(), path="/raw")
        assert head.status == 200 and error_of(text)["code"] == -32012
        await up.start()
        await health_when(front, is_ok)
        assert (await client.request("POST", call_body(), path="/raw"))[1] == result(1)


async def test_hanging_upstream_delays_nobody_else(tmp_path: Path, hanging: str) -> None:
    """Calls of the other server, health and readiness answer at once while ten clients wait for the hanging one."""
    urls = {"hanging": hanging}
    async with RawUpstream(done) as up:
        urls["raw"] = up.url
        async with serving(tmp_path, urls, upstream_request_timeout_seconds=60) as front:
            waiting = [front.client() for _ in range(10)]
            for client in waiting:
                await client.__aenter__()
                await client.send("POST", INITIALIZE, path="/hanging")
            async with asyncio.timeout(8), front.client() as client:
                await client.initialize(path="/raw")
                for number in range(20):
                    assert (await client.request("POST", call_body(number=number), path="/raw"))[1] == result(
                        number
                    )
                _, body = await ask(front, "/healthz")
                assert [server["status"] for server in body["servers"]] == ["degraded", "ok"]
                assert body["servers"][0]["detail"] == "upstream_starting"
                assert (await ask(front, "/readyz"))[0] == 200
            for client in waiting:
                client.close()


async def test_hanging_upstream_opens_the_breaker(tmp_path: Path, hanging: str) -> None:
    """One that opens no session for as long as a client would wait, again and again, is unhealthy."""
    urls = {"hanging": hanging}
    async with (
        serving(tmp_path, urls, upstream_request_timeout_seconds=0.2) as front,
        front.client() as client,
    ):
        _, body = await health_when(front, breaker_is_open)
        assert "opened no session within 0.2 s" in body["servers"][0]["ping"]["last_error"]
        head, text = await client.request("POST", INITIALIZE, path="/hanging")
        assert head.status == 200 and error_of(text)["code"] == -32012


async def test_late_upstream_becomes_ready_without_a_restart(tmp_path: Path) -> None:
    """The port is open and the adapter alive before any upstream is; calls go as soon as it has come."""
    up = RawUpstream(done)
    await up.start()
    await up.stop()
    async with serving(tmp_path, {"raw": up.url}) as front:
        assert (await ask(front, "/livez")) == (200, {"status": "alive"})
        assert (await ask(front, "/readyz"))[0] == 503
        status, body = await health_when(front, lambda body: body["servers"][0]["ping"]["last_error"])
        assert status == 503 and body["startup"]["state"] == "starting"
        async with up, front.client() as client:
            await health_when(front, is_ok)
            assert (await ask(front, "/readyz"))[0] == 200
            await client.initialize(path="/raw")
            assert (await client.request("POST", call_body(), path="/raw"))[1] == result(1)


async def test_upstream_of_the_modern_era_alone_is_healthy(tmp_path: Path) -> None:
    """It refuses ``initialize``, so it is asked for ``server/discover``, and for the other era at times only."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(400, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"modern"}}')

    async def discover(exchange: Exchange) -> None:
        assert exchange.message["method"] == "server/discover"
        answer = {"jsonrpc": "2.0", "id": exchange.message["id"], "result": {"resultType": "complete"}}
        await exchange.json(orjson.dumps(answer))

    async with (
        RawUpstream(discover, opening=refuse) as up,
        serving(tmp_path, {"raw": up.url}) as front,
    ):
        _, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("server/discover")) > 2)
        assert body["servers"][0]["era"] == "modern"
        assert len(up.calls("initialize")) <= len(up.calls("server/discover"))
        asked = up.calls("server/discover")[0].head
        assert (asked["mcp-method"], asked["mcp-protocol-version"]) == ("server/discover", "2026-07-28")


# --- what is told ---------------------------------------------------------------------------------------------


async def test_shape_of_a_healthy_answer(tmp_path: Path) -> None:
    """The keys that monitoring reads, and nothing of the upstream's address."""
    async with RawUpstream(done) as up, serving(tmp_path, {"raw": up.url}) as front:
        status, body = await health_when(front, is_ok)
        assert status == 200 and "degraded_reason" not in body
        (server,) = body["servers"]
        assert (server["server_id"], server["mount_path"], server["status"]) == ("raw", "/raw", "ok")
        assert server["breaker"] == {"state": "closed", "consecutive_failures": 0}
        assert server["ping"]["last_latency_ms"] > 0 and server["ping"]["last_error"] is None
        assert body["persistence"] == {"type": "disk", "status": "ok"}
        assert body["adapter_wiring"] == {"status_by_server": {"raw": True}, "ready": True}
        took = body["startup"].pop("seconds")
        assert body["startup"] == {"state": "complete"} and 0 <= took < 20
        # It is what the start took, however long it is ago.
        await asyncio.sleep(0.01)
        assert (await ask(front, "/healthz"))[1]["startup"] == {"state": "complete", "seconds": took}
        assert "127.0.0.1" not in str(body) and str(up.port) not in str(body["servers"])


async def test_strangers_see_states_and_no_details(tmp_path: Path) -> None:
    """Without the token neither a URL, nor a path, nor the text of an error; with it the error is told."""
    up = RawUpstream(done)
    await up.start()
    await up.stop()
    auth = {"enabled": True, "token": "secret"}
    async with serving(tmp_path, {"raw": up.url}, auth=auth) as front:
        _, body = await health_when(front, breaker_is_open)
        (server,) = body["servers"]
        assert server["ping"]["last_error"] == "failed" and "eras" not in server
        assert str(up.port) not in str(body["servers"]) and str(tmp_path) not in str(body)
        _, told = await ask(front, "/healthz", authorization="Bearer secret")
        assert "cannot be reached" in told["servers"][0]["ping"]["last_error"]
        assert (await ask(front, "/livez"))[0] == 200


@pytest.mark.parametrize(("readiness", "status"), [("any", 200), ("all", 503)])
async def test_readiness_of_any_or_all(tmp_path: Path, readiness: str, status: int) -> None:
    """One dead upstream of two degrades health; whether it takes the pod out of service is a setting."""
    dead = RawUpstream(done)
    await dead.start()
    await dead.stop()
    async with RawUpstream(done) as up:
        urls = {"raw": up.url, "dead": dead.url}
        async with serving(tmp_path, urls, readiness=readiness) as front:
            code, body = await health_when(
                front, lambda body: body["servers"][0]["status"] == "ok" and breaker_is_open(body, 1)
            )
            assert code == 503 and body["degraded_reason"] == "upstream_unhealthy"
            assert (await ask(front, "/readyz"))[0] == status


async def test_server_that_is_not_pinged_says_so(tmp_path: Path) -> None:
    """Nothing is known of it, so it counts as well, its breaker never opens, and no session is opened."""
    async with RawUpstream(done) as up:
        async with serving(tmp_path, {"raw": up.url}, upstream_ping={"enabled": False}) as front:
            status, body = await ask(front, "/healthz")
            assert status == 200
            assert body["servers"] == [
                {
                    "server_id": "raw",
                    "mount_path": "/raw",
                    "status": "ok",
                    "detail": "upstream_ping_disabled",
                    "tools": {"drift": "none"},
                }
            ]
            assert (await ask(front, "/readyz"))[0] == 200
        assert up.seen == []
