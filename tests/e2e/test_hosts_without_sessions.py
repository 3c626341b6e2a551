"""Clients nobody here wrote, in hosts that keep no session: they are served as their settings promise."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from tests.e2e import talk
from tests.e2e.processes import adapter, server, start
from tests.e2e.provision import HERE, packages
from tests.e2e.talk import Talk

pytestmark = pytest.mark.e2e

UPSTREAM = "tests.e2e.upstream_server"
REMEMBERING = "tests.e2e.remembering_server"
BOTH = {"upstream": "principal", "missing_id": "principal"}
CLIENTS = (
    "python_v1",
    "python_v2 legacy",
    "ts_v1",
    "ts_v2 legacy",
    "python_v2 2026-07-28",
    "ts_v2 2026-07-28",
)


@asynccontextmanager
async def opened(name: str, argv: Sequence[str | Path], url: str, place: Path) -> AsyncIterator[Talk]:
    """A connected client script."""
    conversation = talk.opened(
        name,
        argv,
        place / f"{name}.log",
        url=url,
        mode=name.split()[1:],
        environment={"NODE_PACKAGES": str(packages())},
    )
    async with conversation as client:
        assert (await client.answer(10))["ok"]
        yield client


def python(script: str) -> list[str | Path]:
    return [sys.executable, "-m", f"tests.e2e.clients.{script}"]


async def told(client: Talk, tool: str, **arguments: str) -> str:
    answer = await client.ask("call", tool=tool, arguments=arguments, timeout=10)
    assert answer["ok"], answer
    return str(answer["text"])


async def test_clients_of_both_eras_work_where_sessions_are_shared(
    node: Path, mcp1_python: Path, tmp_path: Path
) -> None:
    """All at once, each with ids of its own making, each with several calls under way: everybody gets its answers."""
    pythons = {"python_v1": mcp1_python, "python_v2": Path(sys.executable)}

    def command(name: str) -> list[str | Path]:
        script = name.split()[0]
        if script.startswith("ts_"):
            return [node, HERE / "clients" / f"{script}.mjs"]
        return [pythons[script], "-m", f"tests.e2e.clients.{script}"]

    async with (
        server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, sessions=BOTH) as front,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(opened(name, command(name), front.url, tmp_path))
            for name in CLIENTS
        ]

        async def work(number: int, client: Talk) -> None:
            assert (await client.ask("list", timeout=10))["text"] == "echo wait"
            for step in range(5):
                text = f"{number}-{step}"
                assert await told(client, "echo", text=text) == f"you said {text}"
            calls = await client.ask("together", tool="wait", arguments={"seconds": 0.2}, count=3, timeout=10)
            assert [each["text"] for each in calls["answers"]] == ["waited"] * 3

        await asyncio.gather(*(work(number, client) for number, client in enumerate(clients)))


async def test_session_for_every_call_remembers(tmp_path: Path) -> None:
    """A host that opens a session, calls and closes it again finds what the call before left."""
    async with server(REMEMBERING, tmp_path) as upstream:
        async with adapter(tmp_path, upstream.url, sessions={"upstream": "principal"}) as front:
            for words in ("one", "one two", "one two three"):
                async with opened("python_v2 legacy", python("python_v2"), front.url, tmp_path) as client:
                    assert await told(client, "remember", word=words.split()[-1]) == words
        async with adapter(tmp_path, upstream.url) as front:
            for word in ("four", "five"):
                async with opened("python_v2 legacy", python("python_v2"), front.url, tmp_path) as client:
                    assert await told(client, "remember", word=word) == word


async def test_host_that_drops_ids_goes_on_in_one_session(tmp_path: Path) -> None:
    """Two of them at once, again after a restart of the adapter, and after one of the server."""
    async with (
        server(REMEMBERING, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, sessions={"missing_id": "principal"}) as front,
    ):
        argv = python("python_v2_dropping")
        async with (
            opened("ada", argv, front.url, tmp_path) as ada,
            opened("ben", argv, front.url, tmp_path) as ben,
        ):
            assert await told(ada, "remember", word="a") == "a"
            assert await told(ben, "remember", word="b") == "a b"
            await front.kill()
            await front.start()
            assert await told(ada, "remember", word="c") == "a b c"
            await upstream.kill()
            await upstream.start()
            assert await told(ben, "remember", word="d") == "d"
            assert await told(ada, "remember", word="e") == "d e"


async def test_host_that_drops_ids_is_refused_by_default(tmp_path: Path) -> None:
    """The server issues ids and wants them back, and so does the adapter."""
    async with server(REMEMBERING, tmp_path) as upstream, adapter(tmp_path, upstream.url) as front:
        argv = python("python_v2_dropping")
        conversation = talk.opened("ada", argv, tmp_path / "ada.log", url=front.url)
        async with conversation as client:
            answer = await client.answer(10)
            if answer["ok"]:
                answer = await client.ask("call", tool="remember", arguments={"word": "a"}, timeout=10)
            assert not answer["ok"], answer


async def test_host_that_drops_ids_uses_a_stateless_server(tmp_path: Path) -> None:
    """The SDK's stateless server issues no id: nothing has to be set, before and after a restart."""
    running = await start([sys.executable, "-m", REMEMBERING, "0", "stateless"], tmp_path / "stateless.log")
    try:
        url = await running.line(20)
        async with adapter(tmp_path, url) as front:
            argv = python("python_v2_dropping")
            async with opened("ada", argv, front.url, tmp_path) as client:
                assert await told(client, "remember", word="a") == "a"
                await front.kill()
                await front.start()
                assert (await told(client, "remember", word="b")).endswith("b")
    finally:
        await running.stop()


async def test_questions_and_progress_reach_who_called(tmp_path: Path) -> None:
    """Two SDK clients call at once with equal ids: each is asked for its own name, and told of its own call."""

    async def greeted(url: str, name: str) -> tuple[str, list[float]]:
        steps: list[float] = []

        async def asked(context: Any, params: ElicitRequestParams) -> ElicitResult:
            await asyncio.sleep(0.2)
            return ElicitResult(action="accept", content={"name": name})

        async def told(progress: float, total: float | None, message: str | None) -> None:
            steps.append(progress)

        async with Client(url, mode="legacy", elicitation_callback=asked) as client:
            result = await client.call_tool("greet", {}, progress_callback=told)
        block = result.content[0]
        assert isinstance(block, TextContent)
        return block.text, steps

    async with (
        server(REMEMBERING, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, sessions={"upstream": "principal"}) as front,
    ):
        names = ("ada", "ben", "eve")
        answers = await asyncio.gather(*(greeted(front.url, name) for name in names))
        assert [*answers] == [(f"hello {name}", [1.0, 2.0]) for name in names]
