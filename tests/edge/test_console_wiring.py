"""The tool API as the settings wire it: what is served is described, and calls walk the road of MCP's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from adapter.app.edge import build_guard
from adapter.edge.api.routes import PatternBranch
from adapter.edge.console.page_files import ServerPages
from adapter.edge.http.request import Branch
from tests.edge.conftest import Adapter, StartRoad
from tests.edge.raw import Exchange

CONSOLE = {"enabled": True, "allow_execute": True}


def described(paths: dict[str, Any], branch: Branch, branches: Sequence[Branch]) -> bool:
    """Whether the document has a path with as many names behind the branch's prefix, and its methods: one path may be
    served by several branches.
    """
    beside = [each for each in branches if (each.prefix, each.depth) == (branch.prefix, branch.depth)]
    served = {method for each in beside for method in each.methods}
    prefix = branch.prefix.rstrip("/").split("/")
    for path, methods in paths.items():
        parts = path.split("/")
        behind = parts[len(prefix) :]
        if parts[: len(prefix)] != prefix:
            continue
        pattern = branch.pattern if isinstance(branch, PatternBranch) else None
        fits = len(behind) == branch.depth if pattern is None else tuple(behind) == pattern
        if fits and {method.upper() for method in methods} <= served:
            return True
    return False


async def test_every_served_route_is_described(road: StartRoad) -> None:
    """The tool API, the console's data, uploads, downloads and health; the page is for people."""
    producer = {"type": "artifact_producer", "tools": ["make"], "output_path_argument": "path"}
    taker = {"type": "upload_consumer", "tools": ["take"], "file_path_argument": "path"}
    server = {"adapters": [producer, taker]}
    core = {"allow_artifacts_download": True}
    async with road(server=server, console=CONSOLE, core=core) as (_, front, client):
        head, body = await client.request("GET", path="/explorer/openapi.json")
        assert head.status == 200
        paths = orjson.loads(body)["paths"]
        branches = branches_of(front)
    assert len(branches) > 10
    missing = [branch for branch in branches if not described(paths, branch, branches)]
    assert missing == []
    assert {"/healthz", "/livez", "/readyz"} <= set(paths)


def branches_of(front: Adapter) -> list[Branch]:
    """All branches that are served, but those of the page."""
    app = front.app
    served = [*app.console.branches, *app.files.branches(build_guard(app.settings), None, None)]
    return [
        branch
        for branch in served
        if not isinstance(branch, ServerPages) and not branch.prefix.endswith("/assets")
        if branch.depth or isinstance(branch, PatternBranch)
    ]


async def test_what_came_of_a_streamed_call_is_what_is_told_of_it(road: StartRoad) -> None:
    """An event stream begins with 200 whatever its result's status is."""

    async def script(exchange: Exchange) -> None:
        number = exchange.message["id"]
        listing = exchange.message["method"] == "tools/list"
        said: Any = {"tools": [{"name": "tool", "inputSchema": {}}]}
        if not listing:
            said = {"content": [], "isError": True}
        await exchange.json(orjson.dumps({"jsonrpc": "2.0", "id": number, "result": said}))

    async with road(script, console=CONSOLE) as (_, _, client):
        head, body = await client.request(
            "POST", b"{}", "/explorer/raw/tools/tool/call", accept="text/event-stream"
        )
        assert head.status == 200 and b'"status":500' in body
        _, said = await client.request("GET", path="/explorer/-/exchanges", accept="application/json")
        (told,) = orjson.loads(said)
        assert (told["tool"], told["outcome"], told["status"]) == ("tool", "failed", 500)


async def test_the_plot_frame_gets_its_script(road: StartRoad) -> None:
    """It has no origin, and browsers say so; of all there is, only what is everybody's is open to it."""
    async with road(console=CONSOLE) as (_, _, client):
        for path, status in (
            ("/explorer/assets/now/js/frame.js", 200),
            ("/explorer/", 403),
            ("/explorer/-/me", 403),
        ):
            head, _ = await client.request("GET", path=path, origin="null")
            assert (path, head.status) == (path, status)
        head, _ = await client.request("GET", path="/explorer/assets/now/js/frame.js", host="evil.example")
        assert head.status == 421
