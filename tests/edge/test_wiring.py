"""A configured tool that its server does not have is told by health, and looked for again until it is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from adapter.app import build, running
from adapter.settings.root import Settings
from tests.edge.conftest import Adapter
from tests.edge.raw import Exchange, RawUpstream
from tests.relay.test_health import PING, ask, health_when, is_ok, started


class Tools:
    """An upstream's script that lists ``pages`` of tools, and what it was asked."""

    def __init__(self, *pages: Sequence[str]) -> None:
        self.pages = list(pages)
        self.asked = 0

    async def __call__(self, exchange: Exchange) -> None:
        message: Any = exchange.message
        assert message["method"] == "tools/list", message
        self.asked += 1
        number = int(message.get("params", {}).get("cursor", 0))
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.pages[number]]
        result: dict[str, Any] = {"tools": tools}
        if number + 1 < len(self.pages):
            result["nextCursor"] = str(number + 1)
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


@asynccontextmanager
async def serving(root: Path, up: RawUpstream, **core: object) -> AsyncIterator[Adapter]:
    """The adapter with a consumer ``read``, pinged every 20 ms."""
    consumer = {"type": "upload_consumer", "tools": ["read"], "file_path_argument": "path"}
    settings = {
        "core": {"port": 0, "shutdown_grace_seconds": 0, "upstream_ping": PING, **core},
        "storage": {"root": str(root)},
        "servers": [
            {"id": "raw", "mount_path": "/raw", "upstream": {"url": up.url}, "adapters": [consumer]},
        ],
    }
    app = build(Settings.model_validate(settings))
    async with running(app) as (_, port):
        yield Adapter(app, port)


def wiring(body: dict[str, Any]) -> object:
    return body["adapter_wiring"]["status_by_server"]["raw"]


async def test_a_tool_that_is_not_there_degrades_health_until_it_is(tmp_path: Path) -> None:
    """The list is read again at each ping while the tool is missing, and no more once all are there."""
    tools = Tools(["write"])
    async with started(RawUpstream(tools)) as up, serving(tmp_path, up) as front:
        status, body = await health_when(front, lambda body: wiring(body) == "incomplete")
        assert (status, body["status"]) == (503, "degraded")
        assert body["degraded_reason"] == "adapter_wiring_incomplete"
        assert body["adapter_wiring"] == {
            "status_by_server": {"raw": "incomplete"},
            "ready": False,
            "missing_by_server": {"raw": ["read"]},
        }
        assert (await ask(front, "/readyz"))[0] == 200
        tools.pages = [["write"], ["read"]]
        status, body = await health_when(front, is_ok)
        assert body["adapter_wiring"] == {"status_by_server": {"raw": "ready"}, "ready": True}
        asked, pings = tools.asked, len(up.calls("ping"))
        await health_when(front, lambda _: len(up.calls("ping")) > pings + 2)
        assert tools.asked == asked


async def test_a_server_that_begins_anew_is_looked_at_again(tmp_path: Path) -> None:
    """After a restart it may be another version, without the tool."""
    tools = Tools(["read"])
    async with started(RawUpstream(tools)) as up, serving(tmp_path, up) as front:
        await health_when(front, lambda body: wiring(body) == "ready")
        tools.pages = [[]]
        up.sessions.clear()
        await health_when(front, lambda body: wiring(body) == "incomplete")


async def test_a_server_that_lists_nothing_to_strangers_is_unknown(tmp_path: Path) -> None:
    """Its credentials are the clients' to bring, so nothing is wrong as far as anybody knows."""

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(401, b"who are you?")

    async with started(RawUpstream(refuse)) as up, serving(tmp_path, up) as front:
        status, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("tools/list")) > 1)
        assert (status, body["adapter_wiring"]["ready"], wiring(body)) == (200, True, "unknown")
    async with started(RawUpstream(refuse, opening=refuse)) as up, serving(tmp_path, up) as front:
        _, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("initialize")) > 1)
        assert wiring(body) == "unknown" and up.calls("tools/list") == []


async def test_a_server_without_any_tools_lacks_the_configured_one(tmp_path: Path) -> None:
    """That it does not know the method is an answer too."""

    async def unknown(exchange: Exchange) -> None:
        error = {"code": -32601, "message": "Method not found"}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": exchange.message["id"], "error": error}))

    async with started(RawUpstream(unknown)) as up, serving(tmp_path, up) as front:
        await health_when(front, lambda body: wiring(body) == "incomplete")


async def test_a_list_that_never_comes_leaves_the_server_healthy(tmp_path: Path) -> None:
    """Pings go on, so the breaker stays closed, and the wiring stays unknown."""

    async def hang(exchange: Exchange) -> None:
        await exchange.gone()

    async with started(RawUpstream(hang)) as up, serving(tmp_path, up) as front:
        _, body = await health_when(front, lambda body: is_ok(body) and len(up.calls("tools/list")) > 1)
        assert wiring(body) == "unknown" and body["servers"][0]["breaker"]["state"] == "closed"


async def test_strangers_do_not_learn_which_tool_is_missing(tmp_path: Path) -> None:
    """A state is enough for them; the names are for those with a token."""
    auth = {"enabled": True, "token": "secret"}
    async with started(RawUpstream(Tools([]))) as up, serving(tmp_path, up, auth=auth) as front:
        _, body = await health_when(front, lambda body: wiring(body) == "incomplete")
        assert "missing_by_server" not in body["adapter_wiring"]
        _, told = await ask(front, "/healthz", authorization="Bearer secret")
        assert told["adapter_wiring"]["missing_by_server"] == {"raw": ["read"]}
