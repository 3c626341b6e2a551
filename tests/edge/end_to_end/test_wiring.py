"""A configured tool that its server does not have is told by health, and looked for again until it is there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.edge.conftest import Adapter, start_adapter
from tests.edge.raw import Exchange, RawUpstream, answering, call_body, initialize_result, result, silent
from tests.relay.sessions.test_health_probe import PING, ask, health_when, is_ok


class Tools:
    """An upstream's script that lists ``pages`` of tools, and what it was asked."""

    def __init__(self, *pages: Sequence[str]) -> None:
        self.pages = list(pages)
        self.asked = 0

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        if message["method"] == "server/discover":
            await exchange.answer(400, b"")
            return
        assert message["method"] == "tools/list", message
        self.asked += 1
        number = int(message.get("params", {}).get("cursor", 0))
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.pages[number]]
        result: dict[str, Any] = {"tools": tools}
        if number + 1 < len(self.pages):
            result["nextCursor"] = str(number + 1)
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def serving(root: Path, up: RawUpstream, **core: Any) -> AbstractAsyncContextManager[Adapter]:
    """The adapter with a consumer ``read``, pinged every 20 ms."""
    consumer = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
    core = {"upstream_ping": {"enabled": True, **PING}, "tool_definition_pinning": {"mode": "warn"}, **core}
    return start_adapter(root, up, server={"mount_path": "/raw", "adapters": [consumer]}, core=core)


def wiring(body: dict[str, Any]) -> object:
    return body["adapter_wiring"]["status_by_server"]["raw"]


def is_known(body: dict[str, Any]) -> bool:
    """The server's list has been read."""
    return "unknown_by_server" not in body["adapter_wiring"]


async def test_a_tool_that_is_not_there_degrades_health_until_it_is(tmp_path: Path) -> None:
    """The list is read again at each ping while the tool is missing, and no more once all are there."""
    tools = Tools(["write"])
    async with RawUpstream(tools) as up, serving(tmp_path, up) as front:
        status, body = await health_when(front, lambda body: wiring(body) is False and is_known(body))
        assert (status, body["status"]) == (503, "degraded")
        assert body["degraded_reason"] == "adapter_wiring_incomplete"
        assert body["adapter_wiring"] == {
            "status_by_server": {"raw": False},
            "ready": False,
            "missing_by_server": {"raw": ["read"]},
        }
        assert (await ask(front, "/readyz"))[0] == 200
        tools.pages = [["write"], ["read"]]
        status, body = await health_when(front, is_ok)
        assert body["adapter_wiring"] == {"status_by_server": {"raw": True}, "ready": True}
        asked, pings = tools.asked, len(up.calls("ping"))
        await health_when(front, lambda _: len(up.calls("ping")) > pings + 2)
        assert tools.asked == asked


async def test_a_server_that_begins_anew_is_looked_at_again(tmp_path: Path) -> None:
    """After a restart it may be another version, without the tool."""
    tools = Tools(["read"])
    async with RawUpstream(tools) as up, serving(tmp_path, up) as front:
        await health_when(front, lambda body: wiring(body) is True)
        tools.pages = [[]]
        up.sessions.clear()
        await health_when(front, lambda body: wiring(body) is False and is_known(body))


async def test_a_server_that_lists_nothing_to_strangers_is_unknown(tmp_path: Path) -> None:
    """Its credentials are the clients' to bring, so nothing is wrong as far as anybody knows."""

    refuse = answering(401, b"who are you?")

    async with RawUpstream(refuse) as up, serving(tmp_path, up) as front:
        status, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("tools/list")) > 1)
        assert (status, body["adapter_wiring"]["ready"], wiring(body)) == (200, True, True)
        assert body["adapter_wiring"]["unknown_by_server"] == {"raw": "list_refused"}
    async with RawUpstream(refuse, opening=refuse) as up, serving(tmp_path, up) as front:
        _, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("initialize")) > 1)
        assert wiring(body) is True and up.calls("tools/list") == []
        assert body["adapter_wiring"]["unknown_by_server"] == {"raw": "list_refused"}


@pytest.mark.timed
async def test_a_list_that_never_comes_leaves_the_server_healthy(tmp_path: Path) -> None:
    """Pings go on, so the breaker stays closed; that the tools have not been seen yet is told."""

    async with RawUpstream(silent) as up, serving(tmp_path, up) as front:
        await up.arrived("tools/list")
        pings = len(up.calls("ping"))
        _, body = await health_when(front, lambda _: len(up.calls("ping")) > pings + 3)
        assert (body["servers"][0]["status"], body["servers"][0]["breaker"]["state"]) == ("ok", "closed")
        assert wiring(body) is False and body["degraded_reason"] == "adapter_wiring_incomplete"
        assert body["adapter_wiring"]["unknown_by_server"] == {"raw": "waiting_for_upstream"}
        assert len(up.calls("tools/list")) == 1


async def test_strangers_do_not_learn_which_tool_is_missing(tmp_path: Path) -> None:
    """A state is enough for them; the names are for those with a token."""
    auth = {"enabled": True, "token": "secret"}
    async with RawUpstream(Tools([])) as up, serving(tmp_path, up, auth=auth) as front:
        _, body = await health_when(front, lambda body: wiring(body) is False and is_known(body))
        assert "missing_by_server" not in body["adapter_wiring"]
        _, told = await ask(front, "/healthz", authorization="Bearer secret")
        assert told["adapter_wiring"]["missing_by_server"] == {"raw": ["read"]}


NO_PINGS = {"enabled": False}


async def test_tools_are_looked_for_at_start_where_pings_are_off(tmp_path: Path) -> None:
    """Once, in a session that is closed again; a server that has them all is asked nothing more."""
    tools = Tools(["read"])
    async with RawUpstream(tools) as up, serving(tmp_path, up, upstream_ping=NO_PINGS) as front:
        status, body = await health_when(front, is_ok)
        assert body["adapter_wiring"] == {"status_by_server": {"raw": True}, "ready": True}
        assert body["servers"][0]["detail"] == "upstream_ping_disabled" and status == 200
        await up.arrived("DELETE")
        assert up.sessions == set() and len(up.seen) == 5


async def test_a_server_that_comes_late_is_looked_at_where_pings_are_off(tmp_path: Path) -> None:
    """Nothing is known until it is there; then its tools are."""
    up = RawUpstream(Tools(["read"]))
    await up.start()
    await up.stop()
    async with serving(tmp_path, up, upstream_ping=NO_PINGS) as front:
        _, body = await ask(front, "/healthz")
        assert body["adapter_wiring"]["unknown_by_server"] == {"raw": "waiting_for_upstream"}
        async with up:
            await health_when(front, is_ok)


async def test_a_session_that_was_renewed_has_the_tools_looked_at_where_pings_are_off(tmp_path: Path) -> None:
    """The server behind is another one, perhaps."""
    tools = Tools(["read"])

    async def script(exchange: Exchange) -> None:
        message: Any = exchange.message
        if message["method"] == "tools/list":
            await tools(exchange)
        else:
            await exchange.json(result(message["id"]))

    async with (
        RawUpstream(script) as up,
        serving(tmp_path, up, upstream_ping=NO_PINGS) as front,
        front.client() as client,
    ):
        await health_when(front, is_ok)
        await client.initialize(path="/raw")
        tools.pages = [["write"]]
        up.sessions.clear()
        assert (await client.request("POST", call_body("write"), path="/raw"))[0].status == 200
        _, body = await health_when(front, lambda body: wiring(body) is False)
        assert body["adapter_wiring"]["missing_by_server"] == {"raw": ["read"]}


# --- credentials ----------------------------------------------------------------------------------------------


async def test_an_upstream_that_refuses_the_adapter_is_told_apart(tmp_path: Path) -> None:
    """It is reachable, so clients with credentials of their own are served; its words are for operators."""

    refuse = answering(403, b"bring\x1b[31m a key: " + b"k" * 10_000, "Content-Type: text/plain")

    auth = {"enabled": True, "token": "secret"}
    upstream = RawUpstream(refuse, opening=refuse)
    async with upstream as up, serving(tmp_path, up, auth=auth) as front:
        status, body = await health_when(front, lambda body: is_ok(body) and len(up.seen) > 3)
        (server,) = body["servers"]
        assert (status, server["detail"]) == (200, "upstream_refuses_adapter")
        assert server["breaker"]["state"] == "closed" and "upstream_says" not in server
        _, told = await ask(front, "/healthz", authorization="Bearer secret")
        said = told["servers"][0]["upstream_says"]
        assert said.startswith("HTTP 403: bring\\u001b[31m a key: kkk") and len(said) < 320


async def test_an_upstream_that_refuses_the_adapter_is_logged_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One warning, however many pings it refuses; another one after it had taken the credentials."""
    taken = False

    async def choosy(exchange: Exchange) -> None:
        if not taken:
            await exchange.answer(401, b"who are you?")
        elif exchange.message["method"] == "initialize":
            await exchange.json(initialize_result(exchange.message["id"]))
        else:
            await Tools(["read"])(exchange)

    async with RawUpstream(choosy, opening=choosy) as up, serving(tmp_path, up) as front:
        await health_when(front, lambda _: len(up.seen) > 5)
        assert capsys.readouterr().err.count("refuses the adapter") == 1
        taken = True
        _, body = await health_when(front, lambda body: "detail" not in body["servers"][0])
        assert wiring(body) is True
        assert "refuses the adapter" not in capsys.readouterr().err
