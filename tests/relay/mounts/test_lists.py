"""The lists of a merged mount as one of several processes holds them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from adapter.errors import UpstreamBroken
from adapter.relay.exchange import ClientRequest, Sender
from adapter.relay.mounts import held_lists
from adapter.relay.mounts.held_lists import HeldLists
from adapter.relay.mounts.lists import ListRules, MountLists
from adapter.relay.mounts.reading import ListReader
from adapter.relay.mounts.sessions import MountRequest
from adapter.relay.server import Server
from adapter.rules.access.access_rules import ListShape
from adapter.rules.access.principals import Caller
from adapter.rules.mounts.lists import PROMPTS, RESOURCES, TOOLS, ServerList
from adapter.state.port import Store
from adapter.wire.eras import LEGACY
from tests.scripted import ScriptedUpstream
from tests.state.shared import SharedMemory


class Process:
    """The lists of a mount of one server "a" in one process; ``tools`` are what the server lists. It answers no
    request for a list that is ``broken``.
    """

    broken: ListShape | None = None

    def __init__(self, store: Store, *tools: str) -> None:
        self.tools = tools
        self.heard: asyncio.Queue[ListShape] = asyncio.Queue()
        reader = SimpleNamespace(server=Server("a", "/mcp/a", ScriptedUpstream()), for_all=self._read)
        held = HeldLists(cast(ListReader, reader), store, asyncio.get_running_loop().time)
        self.lists = MountLists([held], ListRules(), store)
        self.lists.listeners.streams.add(self.heard.put_nowait)

    async def _read(self, _: MountRequest, shape: ListShape) -> ServerList:
        if shape is self.broken:
            raise UpstreamBroken("not now")
        names = self.tools if shape is TOOLS else ()
        return ServerList("a", [(name, b'{"name":"%b"}' % name.encode()) for name in names])

    async def read(self, shape: ListShape = TOOLS) -> None:
        """Read a list, as for a client that listens."""
        sender = Sender(LEGACY, "p", "s", caller=Caller("p"))
        mount = Server("all", "/mcp/all", ScriptedUpstream())
        await self.lists.now(shape, MountRequest(ClientRequest(mount, "POST", sender, [])))


async def test_each_kind_of_list_is_told_of_in_all_processes() -> None:
    """A client that read only tools in one hears of prompts that a server changed in another, and of nothing else."""
    shared = SharedMemory()
    one, other = (Process(cast(Store, shared.replica()), "run") for _ in range(2))
    await other.read()
    for told in (PROMPTS, RESOURCES):
        one.lists.changed("a", told)
        async with asyncio.timeout(10):
            assert await other.heard.get() is told
    other.tools = ("walk",)
    one.lists.changed("a", TOOLS)
    async with asyncio.timeout(10):
        assert await other.heard.get() is TOOLS
    assert other.heard.empty()


async def test_a_list_that_fails_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients hear at once of new tools of a server whose prompts are asked for again and again."""
    monkeypatch.setattr(held_lists, "RETRY", 60.0)
    process = Process(cast(Store, SharedMemory().replica()), "run")
    process.broken = PROMPTS
    await process.read(PROMPTS)
    await process.read()
    await asyncio.sleep(0)
    process.tools = ("walk",)
    process.lists.changed("a", TOOLS)
    async with asyncio.timeout(5):
        assert await process.heard.get() is TOOLS
