"""How the lists of a server are read for its mount."""

from __future__ import annotations

import asyncio

import orjson

from adapter.relay.exchange import JSON, ClientRequest, ClientResponse, Sender
from adapter.relay.mounts.reading import ListReader
from adapter.relay.mounts.sessions import MountRequest
from adapter.relay.server import Server
from adapter.rules.access.principals import Caller
from adapter.rules.mounts.lists import RESOURCES, TEMPLATES
from adapter.wire.eras import LEGACY
from tests.scripted import ScriptedUpstream


class Sessions:
    """A server that has resources, and those of its sessions that were opened and not ended."""

    def __init__(self) -> None:
        self.open: list[str | None] = []

    async def handle(self, ask: ClientRequest) -> ClientResponse:
        await asyncio.sleep(0)
        message, headers = orjson.loads(ask.body), [JSON]
        if message["method"] == "initialize":
            self.open.append(f"s{len(self.open)}")
            headers.append(("Mcp-Session-Id", f"s{len(self.open) - 1}"))
        result = {"protocolVersion": "2025-11-25", "resources": [], "resourceTemplates": []}
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        return ClientResponse(200, headers, orjson.dumps(answer))

    async def end(self, ask: ClientRequest, _: float) -> ClientResponse:
        self.open.remove(ask.sender.session_id)
        return ClientResponse(200, [], b"")


async def test_lists_that_are_read_at_once_share_a_session_that_is_ended() -> None:
    """A server keeps no session of the adapter's that nobody ends."""
    server, sessions = Server("a", "/mcp/a", ScriptedUpstream()), Sessions()
    reader = ListReader(sessions, None, server)  # type: ignore[arg-type]  # all that is asked of them here
    request = MountRequest(ClientRequest(server, "POST", Sender(LEGACY, "p", "s", caller=Caller("p")), []))
    await asyncio.gather(reader.for_all(request, RESOURCES), reader.for_all(request, TEMPLATES))
    assert sessions.open == ["s0"]
    await reader.leave(1)
    assert sessions.open == []
