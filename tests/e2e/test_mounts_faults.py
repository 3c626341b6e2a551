"""Three servers at one address, of which one after another is killed, stands still or gets other tools."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.members import PATIENCE, Listener, Member, listener, members, merged
from tests.e2e.processes import Adapter
from tests.e2e.talk import Command, Talk, connected

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "ts_v1",
    "ts_v2 legacy",
    "python_v2 2026-07-28",
    "ts_v2 2026-07-28",
)
THREE = {name: ["run", "rename"] for name in ("one", "two", "three")}
ALL = [f"{server}_{tool}" for server, tools in THREE.items() for tool in tools]
QUICK = {
    "core": {"upstream_ping": {"interval_seconds": 0.3, "timeout_seconds": 1, "open_cooldown_seconds": 0.3}}
}


class Crew:
    """Official clients at one mount. ``expected`` is what they called with success, for each server."""

    def __init__(self, clients: Iterable[Talk]) -> None:
        self.clients = list(clients)
        self.expected: Mapping[str, Counter[str]] = {name: Counter() for name in THREE}
        self._calls = 0

    async def call(self, server: str, tool: str = "run", **arguments: Any) -> None:
        """Have each client call a tool of that server, at once."""
        await asyncio.gather(*(self._call(each, server, tool, arguments) for each in self.clients))

    async def fail(self, server: str, tool: str = "run") -> list[str]:
        """Have each client call a tool of a server that is not there; what they are told."""
        texts = []
        for each in self.clients:
            answer = await each.ask("call", tool=f"{server}_{tool}", arguments={"text": "never"})
            assert not answer["ok"], (each.name, answer)
            texts.append(answer["text"])
        return texts

    async def list(self, *tools: str) -> None:
        """Have each client see these tools, in the time of the mount."""
        for each in self.clients:
            listed = await each.ask("list")
            assert listed == {"step": "list", "ok": True, "text": " ".join(tools)}, each.name

    async def _call(self, client: Talk, server: str, tool: str, arguments: Mapping[str, Any]) -> None:
        self._calls += 1
        text = f"{client.name.replace(' ', '-')}-{self._calls}"
        given = {"text": text, **arguments}
        answer = await client.ask("call", tool=f"{server}_{tool}", arguments=given, timeout=PATIENCE)
        assert answer["ok"] and answer["text"] == f"{server} ran {tool} {text}", (client.name, answer)
        self.expected[server][f"{tool} {text}"] += 1


@asynccontextmanager
async def everybody(
    command: Command, place: Path
) -> AsyncIterator[tuple[dict[str, Member], Adapter, Crew, list[Listener]]]:
    """Three servers, the adapter, all official clients, and two that listen to the mount beside them."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(members(place, **THREE))
        front = await stack.enter_async_context(merged(place, servers, {}, **QUICK))
        url = f"{front.base}/mcp/all"
        talks = [await stack.enter_async_context(connected(command, name, url, place)) for name in CLIENTS]
        heard = [await stack.enter_async_context(listener(url, mode)) for mode in ("legacy", "2026-07-28")]
        crew = Crew(talks)
        await crew.list(*ALL)
        for name in THREE:
            await crew.call(name)
        for each in heard:
            assert await each.listed() == (ALL, [])
        yield servers, front, crew, heard
        assert {name: each.ran for name, each in servers.items()} == crew.expected


async def missed(listeners: Iterable[Listener], server: str) -> None:
    """Wait until lists say that the server is missing; its tools stay in them."""
    async with asyncio.timeout(PATIENCE):
        for each in listeners:
            while (found := await each.listed()) != (ALL, [server]):
                assert found == (ALL, [])
                await asyncio.sleep(0.1)


async def test_others_go_on_while_one_server_is_dead(command: Command, tmp_path: Path) -> None:
    """Each in turn is killed: lists are whole and name it, its own calls fail with the reason, the others are called
    as ever; clients hear of its return, and call it in their sessions."""
    async with everybody(command, tmp_path) as (servers, _, crew, heard):
        for name, server in servers.items():
            await server.kill()
            await missed(heard, name)
            await crew.list(*ALL)
            for text in await crew.fail(name):
                assert "pstream" in text, text
            for other in servers.keys() - {name}:
                await crew.call(other)
            await server.start()
            for each in heard:
                await each.told()
                await each.until(*ALL)
            await crew.call(name)


async def test_others_go_on_while_one_server_stands_still(command: Command, tmp_path: Path) -> None:
    """Each in turn is stopped in the middle of calls, which are answered when it goes on; others are called, and lists
    come in the mount's time."""
    async with everybody(command, tmp_path) as (servers, _, crew, heard):
        for name, server in servers.items():
            async with asyncio.TaskGroup() as tasks:
                waiting = crew.clients[0]
                others = Crew(crew.clients[1:])
                before = server.ran.total()
                slow = Crew([waiting])
                tasks.create_task(slow.call(name, seconds=0.5))
                while server.ran.total() == before:
                    await asyncio.sleep(0.01)
                server.stand_still()
                await missed(heard, name)
                await others.list(*ALL)
                for other in servers.keys() - {name}:
                    await others.call(other)
                server.go_on()
            for each in heard:
                await each.told()
                await each.until(*ALL)
            await crew.call(name)
            for part in (others, slow):
                for key, count in part.expected.items():
                    crew.expected[key].update(count)


async def test_a_server_gets_other_tools(command: Command, tmp_path: Path) -> None:
    """Each in turn renames its tools, by its own word and as another program in its place: lists follow, old names are
    unknown, and no other server is asked for them."""
    async with everybody(command, tmp_path) as (servers, _, crew, heard):
        for number, (name, server) in enumerate(servers.items()):
            renamed = [tool.replace(f"{name}_run", f"{name}_walk") for tool in ALL]
            first = Crew(crew.clients[number : number + 1])
            await first.call(name, "rename", names=["walk", "rename"])
            for each in heard:
                await each.until(*renamed)
            await crew.list(*renamed)
            await crew.call(name, "walk")
            for text in await crew.fail(name):
                assert "Unknown tool" in text, text
            await server.kill()
            server.offer(*THREE[name])
            await server.start()
            for each in heard:
                await each.until(*ALL)
            await crew.list(*ALL)
            await crew.call(name)
            for key, count in first.expected.items():
                crew.expected[key].update(count)
