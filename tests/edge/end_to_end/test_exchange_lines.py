"""The line that each exchange leaves, in the log and for the console: whatever a client calls a tool."""

from __future__ import annotations

import orjson
import pytest

from adapter.edge.mcp.endpoint import LONGEST_NAME
from tests.edge.conftest import StartRoad
from tests.edge.raw import result

NAMES = {
    "lone surrogate": (r"\ud800x", r"\ud800x"),
    "its other half": (r"a\udfff", r"a\udfff"),
    "line ends": (r"a\r\nb", r"a\u000d\u000ab"),
    "long": ("n" * 10_000, "n" * (LONGEST_NAME - 1) + "…"),
    "another script": ("größe", "größe"),
}


@pytest.mark.parametrize("name", NAMES)
async def test_no_name_of_a_tool_ends_its_exchange(
    in_session: StartRoad, capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    """The call is answered, on a connection that goes on; the line has the name as it can be written."""
    said, written = NAMES[name]
    body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"' + said + '"}}'
    settings = {"core": {"access_log": True}, "console": {"enabled": True}}
    async with in_session(**settings) as (_, front, client):
        for _ in range(2):
            _, answer = await client.request("POST", body.encode())
            assert answer == result(1)
        async with front.client() as other:
            _, listed = await other.request("GET", path="/explorer/-/exchanges")
            assert orjson.loads(listed)[0]["tool"] == written
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().err.splitlines()]
    assert [line["name"] for line in lines if line.get("method") == "tools/call"] == [written] * 2


async def test_a_tool_of_any_name_may_be_called_over_http(road: StartRoad) -> None:
    """Bytes of a path that are no text make a name that nobody has, and end nothing."""
    console = {"enabled": True, "allow_execute": True}
    core = {"access_log": True}
    async with road(core=core, console=console) as (_, _, client):
        for name in ("%ED%A0%80", "%ED%A0%80", "a%0D%0Ab"):
            head, _ = await client.request("POST", b"{}", f"/explorer/raw/tools/{name}/call")
            assert head.status in (404, 500, 502)
