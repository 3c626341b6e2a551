"""One endpoint for each server, what of its requests reaches the stages, and the context that they share."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.edge.raw import RawClient
from tests.pipeline.end_to_end.living import ERAS, Living, living

SETTINGS = """
context: {factory: "around.py#context"}
servers:
  - id: shop
    mount_path: /mcp
    upstream: {transport: hosted}
    tools:
      define:
        - name: who
          handler: "around.py#who"
          auth: {plugin: "around.py#auth", policy: {realm: shop, key: "{{ env.KEY }}"}}
          middleware: ["around.py#tenant"]
        - {name: open, handler: "around.py#who"}
"""

AROUND = """
CALLS = []


def context(request):
    CALLS.append(request.tool)
    return {"calls": len(CALLS), "bag": [], "signal": "ignored", "request": "ignored"}


def auth(request, policy):
    if request.headers.get("X-Tenant") == "nobody":
        raise PermissionError("no tenant")
    assert policy == {"realm": "shop", "key": "k3y"}
    return {"name": request.headers.get("x-tenant"), "tool": request.tool, "server": request.server}


def tenant(ctx):
    ctx.bag.append("seen")
    return {"tenant": ctx["user"]["name"].upper()}


def who(payload, context):
    said = {name: context.get(name) for name in ("user", "tenant", "calls", "bag")}
    said["entrance"], said["principal"] = context.request.entrance, context["request"]["principal"]
    return {**said, "signal": type(context.signal).__name__}
"""


def shop(place: Path) -> AbstractAsyncContextManager[Living]:
    return living(place, SETTINGS, {"KEY": "k3y"}, scripts={"around": AROUND})


@pytest.mark.parametrize("version", ERAS)
async def test_h33_headers_reach_the_plugin_with_each_request(tmp_path: Path, version: str) -> None:
    """In one session too: who calls is asked for every call, not once."""
    async with shop(tmp_path) as front, front.speaker(version) as speaker:
        for tenant in ("ann", "bob"):
            said = (await speaker.call("who", {}, {"X-TENANT": tenant})).data
            assert said["user"] == {"name": tenant, "tool": "who", "server": "shop"}
            assert said["tenant"] == tenant.upper()
        refused = await speaker.call("who", {}, {"X-Tenant": "nobody"})
        assert refused.text == "unauthorized: no tenant" and refused.failure["stage"] == "auth"


async def test_v3_each_call_has_a_context_of_its_own(tmp_path: Path) -> None:
    """The factory is asked for each call; what one puts into it no other sees; the adapter's own members stay."""
    async with shop(tmp_path) as front, front.speaker() as speaker:
        for number in (1, 2):
            said = (await speaker.call("who", {}, {"X-Tenant": "ann"})).data
            assert (said["calls"], said["bag"]) == (number, ["seen"])
            assert (said["entrance"], said["principal"], said["signal"]) == ("mcp", "anonymous", "Signal")
        said = (await speaker.call("open", {})).data
        assert (said["user"], said["tenant"], said["bag"]) == (None, None, [])


async def test_h32_one_endpoint_serves_post_get_and_delete(tmp_path: Path) -> None:
    """A session is opened, listened to and ended under one path; any other method is refused."""
    async with shop(tmp_path) as front, front.speaker() as speaker:
        assert (await speaker.call("open", {})).data["calls"] == 1
        async with RawClient(front.port) as listener:
            listener.session = speaker.raw.session
            await listener.send("GET", path="/mcp", accept="text/event-stream")
            head = await listener.head()
            assert (head.status, head["content-type"]) == (200, "text/event-stream")
        head, body = await speaker.raw.request("PUT", b"{}")
        assert head.status == 405 and b"GET, POST, DELETE" in body
        head, _ = await speaker.raw.request("DELETE")
        assert head.status == 200
        head, _ = await speaker.raw.request("POST", speaker.request("tools/list", {})[1])
        assert head.status == 404
