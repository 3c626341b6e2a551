"""Clients nobody here wrote: they work through the adapter, read its failures, and go on afterwards."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.processes import Adapter, Server, adapter
from tests.e2e.talk import PATIENCE, Command, Talk, opened

pytestmark = [pytest.mark.e2e, pytest.mark.timed]

REFUSED = "The upstream server cannot be reached: it refused the connection"
"""What a client reads while nothing listens where the upstream was."""

UPSTREAM = "tests.e2e.upstream_server"
LEGACY = ("python_v1", "python_v2 legacy", "ts_v1", "ts_v2 legacy")
MODERN = ("python_v2 2026-07-28", "ts_v2 2026-07-28")
CHOOSING = ("python_v2 auto", "fastmcp4", "ts_v2 auto")
CLIENTS = (*LEGACY, *MODERN, *CHOOSING)


async def together(client: Talk) -> list[dict[str, Any]]:
    """What comes of two calls at once, the failures last."""
    told = await client.ask("together", tool="wait", arguments={"seconds": 0.5}, count=2)
    answers: list[dict[str, Any]] = told["answers"]
    return sorted(answers, key=lambda answer: answer["ok"], reverse=True)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_outlives_its_upstream(name: str, command: Command, tmp_path: Path) -> None:
    """Lists, calls, reads in time why calls fail while the upstream is away, and goes on in the same session."""
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url) as front,
        opened(command, name, front.url, tmp_path) as client,
    ):
        assert (await client.answer())["ok"]
        assert await client.ask("list") == {"step": "list", "ok": True, "text": "echo wait"}
        assert (await client.echo("one"))["text"] == "you said one"

        await client.say("call", tool="wait", arguments={"seconds": 60})
        assert upstream.running is not None
        assert await upstream.running.line(PATIENCE) == "waiting"
        await upstream.kill()
        cut_off = await client.answer()
        assert not cut_off["ok"]
        assert "upstream" in cut_off["text"], cut_off

        refused = await client.echo("two")
        assert not refused["ok"]
        assert REFUSED in refused["text"], refused

        await upstream.start()
        assert (await client.echo("three"))["text"] == "you said three"


@pytest.mark.timed
async def test_every_client_reads_which_limit_it_hit(command: Command, tmp_path: Path) -> None:
    """Of two calls at once one is answered and one is refused, naming the setting; then the client goes on."""
    limits = {"max_in_flight_per_session": 1}
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url, sessions=limits) as front,
    ):
        for name in CLIENTS:
            async with opened(command, name, front.url, tmp_path) as client:
                assert (await client.answer())["ok"], name
                # A client may ask for the tools once, beside its first call of one.
                assert (await client.echo("first"))["text"] == "you said first", name
                answered, refused = await together(client)
                assert answered == {"ok": True, "text": "waited"}, name
                assert "max_in_flight_per_session" in refused["text"], (name, refused)
                assert (await client.echo("again"))["text"] == "you said again", name


async def test_every_client_is_refused_with_a_wrong_token(command: Command, tmp_path: Path) -> None:
    """A wrong token ends in a failure that says so, with the right one the same client connects."""
    auth = {"auth": {"enabled": True, "token": "right-token-of-the-test"}}
    async with Server(UPSTREAM, tmp_path) as upstream, adapter(tmp_path, upstream.url, core=auth) as front:
        for name in CLIENTS:
            for token, welcome in (("wrong-token", False), ("right-token-of-the-test", True)):
                headers = {"Authorization": f"Bearer {token}"}
                async with opened(command, name, front.url, tmp_path, headers) as client:
                    told = await client.answer()
                    if told["ok"]:  # a client pinned to the modern era connects without a word
                        told = await client.ask("list")
                    assert told["ok"] is welcome, (name, told)
                    assert welcome or "token" in told["text"] or "401" in told["text"], (name, told)


async def test_a_client_whose_session_is_gone_knows_it(command: Command, tmp_path: Path) -> None:
    """The adapter lost its store: a legacy client's call fails in time, and a new client is served."""
    async with Server(UPSTREAM, tmp_path) as upstream, adapter(tmp_path, upstream.url) as front:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(opened(command, name, front.url, tmp_path)) for name in LEGACY
            ]
            for client in clients:
                await _settled(client)
            await _forget_everything(front)
            for client in clients:
                told = await client.echo("still there?")
                assert not told["ok"], (client.name, told)
                assert "ession" in told["text"], (client.name, told)
        async with opened(command, LEGACY[0], front.url, tmp_path) as fresh:
            assert (await fresh.answer())["ok"]
            assert (await fresh.echo("hello"))["text"] == "you said hello"


async def test_sessions_go_on_after_the_adapter_was_killed(command: Command, tmp_path: Path) -> None:
    """SIGKILL to the adapter and a new start: every client's next call is answered, as if nothing had been."""
    async with (
        Server(UPSTREAM, tmp_path) as upstream,
        adapter(tmp_path, upstream.url) as front,
        AsyncExitStack() as stack,
    ):
        clients = [
            await stack.enter_async_context(opened(command, name, front.url, tmp_path)) for name in CLIENTS
        ]
        for client in clients:
            await _settled(client)
        await front.kill()
        await front.start()
        for client in clients:
            assert (await client.echo("again"))["text"] == "you said again", client.name


async def _settled(client: Talk) -> None:
    """Connected, and called once: the SDK 2.x closes its connection for good, with or without the adapter,
    when the server dies while its ``notifications/initialized`` is still on the way."""
    assert (await client.answer())["ok"], client.name
    assert (await client.echo("before"))["ok"], client.name


async def _forget_everything(front: Adapter) -> None:
    await front.kill()
    shutil.rmtree(front.settings["storage"]["root"])
    await front.start()
