"""The GET stream of a session at a merged mount, and its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from adapter.relay.exchange import ClientRequest, Sender
from adapter.relay.mounts.streams import Listeners, MergedStream, open_stream
from adapter.relay.server import Server
from adapter.rules.access.principals import Caller
from adapter.wire.eras import LEGACY
from tests.scripted import ScriptedUpstream


def opened() -> tuple[Any, Any, ClientRequest]:
    """A session without servers, those who keep such sessions, and what a stream is asked for with."""
    held: set[object] = set()
    inner = SimpleNamespace(hold=held.add, release=held.discard)
    session = SimpleNamespace(session=inner, streams=[], held=held)
    sessions = SimpleNamespace(follow_others=lambda _: None, leave_others=lambda _: None)
    sender = Sender(LEGACY, "p", "s", caller=Caller("p"))
    ask = ClientRequest(Server("all", "/mcp/all", ScriptedUpstream()), "GET", sender, [])
    return session, sessions, ask


async def test_a_stream_whose_client_left_at_once_ends() -> None:
    """Nothing of it is kept, though nobody asked for its first piece."""
    session, sessions, ask = opened()
    listeners: Listeners = set()
    relay = cast(Any, None)
    answer = await open_stream(
        relay, sessions, {}, ask, session, lambda _: None, lambda _, data: data, listeners
    )
    assert len(session.streams) == len(listeners) == len(session.held) == 1
    await answer.close()
    assert (session.streams, listeners, session.held) == ([], set(), set())


async def test_a_stream_that_is_cut_while_it_waits_leaves_no_task() -> None:
    """A client that goes is the usual end of a stream."""
    session, sessions, ask = opened()
    stream = MergedStream(
        cast(Any, None), sessions, ask, session, lambda _: None, lambda _, data: data, set()
    )
    reading = asyncio.ensure_future(anext(stream.pieces()))
    while len(asyncio.all_tasks()) < 4:
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
