"""The GET stream of a session at a merged mount, and its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from adapter.relay.exchange import ClientRequest, ClientResponse, Sender
from adapter.relay.mounts.held_lists import ListListeners
from adapter.relay.mounts.sessions import MountRequest
from adapter.relay.mounts.streams import MergedStream, MountStreams
from adapter.relay.server import Server
from adapter.rules.access.principals import Caller
from adapter.wire.envelope import read_envelope
from adapter.wire.eras import LEGACY, MODERN
from tests.scripted import ScriptedUpstream


def opened() -> tuple[Any, Any, ClientRequest]:
    """A session without servers, those who keep such sessions, and what a stream is asked for with."""
    held: set[object] = set()
    inner = SimpleNamespace(hold=held.add, release=held.discard)
    session = SimpleNamespace(session=inner, followers=[], held=held)
    sessions = SimpleNamespace(follow_others=lambda _: None, leave_others=lambda _: None)
    sender = Sender(LEGACY, "p", "s", caller=Caller("p"))
    ask = ClientRequest(Server("all", "/mcp/all", ScriptedUpstream()), "GET", sender, [])
    return session, sessions, ask


def listened_to() -> Any:
    """The lists of a mount, which change nothing in what servers say."""
    return SimpleNamespace(
        listeners=ListListeners(), changed=print, last_uris=lambda *_: None, are_alike=lambda *_: True
    )


async def test_a_stream_whose_client_left_at_once_ends() -> None:
    """Nothing of it is kept, though nobody asked for its first piece."""
    session, sessions, ask = opened()
    lists = listened_to()
    answer = await MountStreams(cast(Any, None), sessions, lists, {}).open(ask, session)
    assert len(session.followers) == len(lists.listeners.streams) == len(session.held) == 1
    await answer.close()
    assert (session.followers, lists.listeners.streams, session.held) == ([], set(), set())


async def test_a_stream_that_is_cut_while_it_waits_leaves_no_task() -> None:
    """A client that goes is the usual end of a stream."""
    session, _, ask = opened()
    stream = MergedStream(cast(Any, None), listened_to(), MountRequest(ask, session))
    reading = asyncio.ensure_future(anext(stream.pieces()))
    while len(asyncio.all_tasks()) < 2:
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)


class FaultyRelay:
    """Fails by a defect at first, and then has a stream that says ``NEWS``."""

    def __init__(self) -> None:
        self.asked = 0

    async def handle(self, _: ClientRequest) -> ClientResponse:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("a defect")
        return ClientResponse(200, [("Content-Type", "text/event-stream")], NEWS)


NEWS = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}\n\n'
LISTEN = (
    b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen",'
    b'"params":{"notifications":{"toolsListChanged":true}}}'
)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_server_is_heard_again_after_a_defect(era: Any) -> None:
    """It is logged, and ends no stream for good."""
    defects: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: defects.append(context["exception"]))
    session, sessions, ask = opened()
    relay, server = cast(Any, FaultyRelay()), ask.server
    session.id_at = session.marked = lambda name: name
    session.members, session.under_way, session.held = {}, {}, {}
    sessions.in_agreed_version = lambda _: None

    async def is_open(*_: object) -> bool:
        return True

    sessions.is_open = is_open
    streams = MountStreams(relay, sessions, listened_to(), {"all": server})
    if era is LEGACY:
        answer = await streams.open(ask, session)
    else:
        ask.envelope, ask.sender = read_envelope(LISTEN), ask.sender._replace(era=MODERN)
        answer = await streams.subscribe(MountRequest(ask))
    pieces = cast(Any, answer.body)
    async with asyncio.timeout(60):
        while await anext(pieces) != NEWS:
            pass
    await pieces.aclose()
    await answer.close()
    assert [str(each) for each in defects] == ["a defect"]
