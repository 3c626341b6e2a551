"""A merged mount that one process serves or several do: replicas on one Redis, or workers on one SQLite file."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import types

from tests.e2e.filing import said
from tests.e2e.json_session import Json, JsonSession
from tests.e2e.members import MISSING, PATIENCE, Listener, Member, listener, members, merged, merged_settings
from tests.e2e.processes import Adapter
from tests.e2e.replicas import replicated
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

THREE = {name: ["run", "rename", "ask"] for name in ("one", "two", "three")}
ALL = [f"{server}_{tool}" for server, tools in THREE.items() for tool in tools]
RENAMED = ["walk", "rename", "ask"]
CHANGED = b"notifications/tools/list_changed"
QUICK = {"upstream_ping": {"interval_seconds": 0.3, "timeout_seconds": 1, "open_cooldown_seconds": 0.3}}

LONG = aiohttp.ClientTimeout(total=None)


@dataclass
class Roamer(JsonSession):
    """A session of which each request goes to the next of some addresses, on a connection of its own."""

    urls: Iterator[str] = field(default_factory=lambda: itertools.repeat(""))

    async def _send(self, method: str, params: Json, **more: object) -> str:
        self.url = next(self.urls)
        return await super()._send(method, params, **more)

    async def seen(self) -> tuple[list[str], list[str]]:
        """The names of all tools, and the servers that are missing."""
        listed = await self.ask("tools/list")
        return [tool["name"] for tool in listed["tools"]], [*listed.get("_meta", {}).get(MISSING, {})]

    async def run(self, server: str, text: str, tool: str = "run") -> None:
        """Call a tool of a server."""
        assert said(await self.call(f"{server}_{tool}", text=text)) == f"{server} ran {tool} {text}"

    async def fail(self, server: str) -> str:
        """Call a tool of a server that is not there; what is said of that."""
        answer = await self.answer("tools/call", {"name": f"{server}_run", "arguments": {"text": "never"}})
        assert "error" in answer or answer["result"]["isError"], answer
        return str(answer)

    async def missing(self) -> list[str]:
        """The servers that the health of the next address names as missing."""
        async with self.http.get(f"{next(self.urls).removesuffix('/mcp/all')}/healthz") as answer:
            (shown,) = (await answer.json())["mounts"]
            return [*shown["missing"]]

    async def status_in(self, other: Roamer) -> int:
        """The status of a list in the session of another client."""
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with self.http.post(next(self.urls), json=ask, headers=other.headers) as answer:
            await answer.read()
            return answer.status

    async def end(self) -> None:
        """End the session at the next address."""
        self.url = next(self.urls)
        await self.close()


@dataclass(frozen=True)
class Scene:
    """``fronts`` are the adapters; ``lanes`` the addresses of the mount, of which each process has some. ``watchers``
    are clients on connections of their own, which stay: each process has some of these too.
    """

    servers: dict[str, Member]
    fronts: Sequence[Adapter]
    http: aiohttp.ClientSession
    workers: int
    watchers: list[Roamer] = field(default_factory=list)

    @property
    def lanes(self) -> list[str]:
        """Connections of each process in turn; which worker has one is for the kernel to say."""
        return [f"{each.base}/mcp/all" for each in self.fronts] * (3 * self.workers)

    def roamer(self) -> Roamer:
        """A client whose requests go to all in turn."""
        return Roamer(self.http, "", urls=itertools.cycle(self.lanes))

    async def watch(self, stack: AsyncExitStack) -> None:
        """Open the connections of the watchers. Workers share those that are open, so that none has none."""
        for url in self.lanes[: 1 if self.workers > 1 else len(self.fronts)] * (4 * self.workers):
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=self.http.timeout))
            watcher = Roamer(http, "", urls=itertools.repeat(url))
            await watcher.open()
            self.watchers.append(watcher)

    async def until(self, tools: Sequence[str], *missing: str) -> None:
        """List until every process says that these are the tools, and these servers are missing."""
        async with asyncio.timeout(PATIENCE):
            for watcher in self.watchers:
                while await watcher.seen() != ([*tools], [*missing]):
                    await asyncio.sleep(0.1)

    async def until_known(self, *missing: str) -> None:
        """Look until the health of every process names these servers as missing."""
        async with asyncio.timeout(PATIENCE):
            for watcher in self.watchers:
                while await watcher.missing() != [*missing]:
                    await asyncio.sleep(0.1)


async def all_serve(front: Adapter, workers: int) -> None:
    """Wait until so many workers have said that they serve: the first one takes all connections until then."""
    await until(
        lambda: (front.place / "adapter.log").read_text().count('"event":"serving"') >= workers, PATIENCE
    )


@asynccontextmanager
async def scene(place: Path, replicas: int, workers: int) -> AsyncIterator[Scene]:
    """Three servers behind so many replicas or workers; connections are never used twice but those of watchers."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(members(place, **THREE))
        core = {**QUICK, **({"workers": workers} if workers > 1 else {})}
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        if replicas > 1:
            sections = merged_settings(servers, core=core)
            front = await stack.enter_async_context(replicated(place, "", replicas, **sections))
            found = Scene(servers, front.replicas, http, 1)
        else:
            single = await stack.enter_async_context(merged(place, servers, {}, core=core))
            await all_serve(single, workers)
            found = Scene(servers, [single], http, workers)
        await found.watch(stack)
        yield found


class Ear:
    """The stream of a session at one address."""

    def __init__(self, stream: aiohttp.ClientResponse) -> None:
        assert stream.status == 200
        self._stream = stream

    async def told(self) -> None:
        """Wait until it says once more that the tools have changed."""
        async with asyncio.timeout(PATIENCE):
            while CHANGED not in await self._stream.content.readline():
                pass


async def rename(client: Roamer, ear: Ear, server: str, names: Sequence[str]) -> None:
    """Give a server other tools until that is heard: the client's stream may still be on its way to the server."""
    async with asyncio.timeout(PATIENCE):
        told = asyncio.create_task(ear.told())
        while not told.done():
            await client.call(f"{server}_rename", names=names)
            await asyncio.wait([told], timeout=3)
        await told


@asynccontextmanager
async def ears(one: Scene) -> AsyncIterator[list[Ear]]:
    """A client that only lists and listens at each address, of which each has a session of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for url in one.lanes[: max(len(one.fronts), 2 * one.workers)]:
            client = Roamer(one.http, "", urls=itertools.repeat(url))
            await client.open()
            await one.until(ALL)
            answer = one.http.get(url, headers=client.headers, timeout=LONG)
            found.append(Ear(await stack.enter_async_context(answer)))
        yield found


# --- the cases ------------------------------------------------------------------------------------------------------


async def move_a_session(one: Scene) -> None:
    """Each request reaches another process: first calls at once, lists, and the end, of which all hear."""
    client = one.roamer()
    await client.open()
    await one.until(ALL)
    for _ in one.lanes:
        assert await client.seen() == (ALL, [])
    texts = [f"at-once-{number}" for number in range(6)]
    await asyncio.gather(*(client.run(server, text) for server in THREE for text in texts))
    for number in range(6):
        for server in THREE:
            await client.run(server, f"{number}")
    wanted = Counter(f"run {text}" for text in (*texts, *map(str, range(6))))
    assert all(server.ran == wanted for server in one.servers.values())
    await client.end()
    async with asyncio.timeout(PATIENCE):
        for watcher in one.watchers:
            while await watcher.status_in(client) != 404:
                await asyncio.sleep(0.02)


async def ask_at_once(one: Scene) -> None:
    """Three servers ask under equal ids, whichever processes have the calls and get the answers: all answers reach who
    asked."""
    asked: asyncio.Queue[str] = asyncio.Queue()
    everybody = asyncio.Event()

    async def answer(_: Any, params: Any) -> types.ElicitResult:
        asked.put_nowait(params.message)
        if asked.qsize() == len(THREE):
            everybody.set()
        await everybody.wait()
        return types.ElicitResult(action="accept", content={"text": f"answer to {params.message}"})

    async with (
        listener(one.lanes[0], "legacy", elicitation_callback=answer) as client,
        asyncio.TaskGroup() as calls,
    ):
        for server in THREE:
            calls.create_task(ask_for(client, server))


async def ask_for(client: Listener, server: str) -> None:
    """Call a tool that asks, and look for whose answer it got."""
    found = await client.client.call_tool(f"{server}_ask", {"text": server})
    assert [getattr(each, "text", "") for each in found.content] == [f"answer to {server}"]


async def kill_each(one: Scene, listening: Sequence[Ear]) -> None:
    """Every process names it as missing, also in ``/healthz``, calls the others as ever, and tells its own clients of
    the return."""
    client = one.roamer()
    await client.open()
    for name, server in one.servers.items():
        await client.run(name, f"before the end of {name}")
        await server.kill()
        await one.until(ALL, name)
        await one.until_known(name)
        assert "pstream" in await client.fail(name)
        for other in THREE.keys() - {name}:
            await client.run(other, f"beside the dead {name}")
        await server.start()
        await asyncio.gather(*(each.told() for each in listening))
        await one.until(ALL)
        await one.until_known()
        await client.run(name, f"after the end of {name}")


async def stop_each(one: Scene, listening: Sequence[Ear]) -> None:
    """Nobody waits for a server that stands still but its own callers, whose call runs once when it goes on."""
    client = one.roamer()
    await client.open()
    for name, server in one.servers.items():
        await client.run(name, f"before the rest of {name}")
        server.stand_still()
        waiting = asyncio.create_task(client.run(name, f"during the rest of {name}"))
        await one.until(ALL, name)
        for other in THREE.keys() - {name}:
            await client.run(other, f"beside the resting {name}")
        server.go_on()
        await asyncio.gather(*(each.told() for each in listening))
        await one.until(ALL)
        await waiting


async def rename_each(one: Scene, listening: Sequence[Ear]) -> None:
    """What a server says beside one call is told to the clients of every process, and every process lists the new
    tools."""
    client = one.roamer()
    await client.open()
    async with one.http.get(one.lanes[0], headers=client.headers, timeout=LONG):
        for name in one.servers:
            renamed = [tool.replace(f"{name}_run", f"{name}_walk") for tool in ALL]
            for names, tools in ((RENAMED, renamed), (THREE[name], ALL)):
                await rename(client, listening[0], name, names)
                await asyncio.gather(*(each.told() for each in listening[1:]))
                await one.until(tools)
                await client.run(name, f"as {names[0]}", names[0])


async def outlive_a_replica(one: Scene) -> None:
    """One is killed while a client listens there and calls elsewhere: the session goes on, and its stream at another
    one hears of the next change."""
    client = one.roamer()
    await client.open()
    for server in THREE:
        await client.run(server, "before the end of a replica")
    with suppress(aiohttp.ClientError):
        async with one.http.get(one.lanes[0], headers=client.headers) as stream:
            assert stream.status == 200
            await one.fronts[0].kill()
            await stream.read()
    rest = one.lanes[1:3]
    client.urls = itertools.cycle(rest)
    for number in range(4):
        for server in THREE:
            await client.run(server, f"after the end of a replica {number}")
        assert await client.seen() == (ALL, [])
    async with one.http.get(rest[0], headers=client.headers, timeout=LONG) as again:
        await rename(client, Ear(again), "two", RENAMED)
    await client.end()


async def tell_an_official_client(one: Scene) -> None:
    """It hears of each change, whichever worker its connections reach."""
    async with listener(one.lanes[0], "legacy") as client:
        await client.until(*ALL)
        for server in THREE:
            for names in (RENAMED, THREE[server]):
                tools = {**THREE, server: names}
                seen = client.until(*(f"{name}_{tool}" for name in THREE for tool in tools[name]))
                waiting = asyncio.create_task(seen)
                while not waiting.done():
                    await client.client.call_tool(f"{server}_rename", {"names": names})
                    await asyncio.wait([waiting], timeout=3)
                await waiting


@pytest.mark.parametrize(
    ("replicas", "workers"), [(1, 1), (3, 1), (1, 2)], ids=["alone", "replicas", "workers"]
)
async def test_processes_serve_a_mount_as_one(tmp_path: Path, replicas: int, workers: int) -> None:
    """Sessions move; servers are killed, stand still and are renamed, and no call runs twice."""
    async with scene(tmp_path, replicas, workers) as one:
        await move_a_session(one)
        await ask_at_once(one)
        async with ears(one) as listening:
            await kill_each(one, listening)
            await stop_each(one, listening)
            await rename_each(one, listening)
        await (outlive_a_replica if replicas > 1 else tell_an_official_client)(one)
        for member in one.servers.values():
            assert max(count for ran, count in member.ran.items() if not ran.startswith("rename")) == 1
