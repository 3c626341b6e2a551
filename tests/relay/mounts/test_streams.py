"""The GET stream of a session at a merged mount, and its end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import orjson
import pytest

from adapter.relay.exchange import ClientRequest, ClientResponse, Sender
from adapter.relay.mounts.asks import OWN
from adapter.relay.mounts.held_lists import ListListeners
from adapter.relay.mounts.sessions import MountRequest
from adapter.relay.mounts.streams import MergedStream, MountStreams
from adapter.relay.server import Server
from adapter.rules.access.principals import NOBODY, Caller
from adapter.rules.eras.legacy_server import MOST_URIS
from adapter.rules.mounts.names import Owner
from adapter.wire.envelope import Envelope, read_envelope
from adapter.wire.eras import LEGACY, MODERN
from adapter.wire.rpc_refusals import RpcRefused
from tests.scripted import ScriptedUpstream
from tests.waiting import until


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
    await until(lambda: len(asyncio.all_tasks()) >= 2)
    reading.cancel()
    await asyncio.wait([reading])
    await until(lambda: len(asyncio.all_tasks()) <= 1)


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


# --- subscriptions at a merged mount: what each of its servers is asked for, and in whose name --------------------


SERVERS = {each: Server(each, f"/mcp/{each}", ScriptedUpstream()) for each in ("a", "b", "apart")}


class Asked(NamedTuple):
    """A subscription at a server: what of, and whether the adapter's own."""

    server: str
    wanted: Any
    own: bool


async def asked_for(wanted: object, servers: int) -> list[Asked]:
    """What the servers are asked for, of which so many tell something."""
    asked: list[Asked] = []
    said = b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{}}\n\n'

    async def handle(own: ClientRequest) -> ClientResponse:
        assert isinstance(own.envelope, Envelope) and own.body == own.envelope.body
        is_own = (own.sender.principal, own.sender.caller) == (OWN, NOBODY)
        found = orjson.loads(own.body)["params"]["notifications"]
        asked.append(Asked(own.server.id, found, is_own))
        return ClientResponse(200, [("Content-Type", "text/event-stream")], said)

    async def owner_of_uri(_: object, uri: str) -> Owner | None:
        server, _, name = uri.partition("!")
        return Owner(server, name) if server in SERVERS else None

    lists = SimpleNamespace(
        listeners=ListListeners(),
        changed=print,
        last_uris=lambda *_: None,
        owner_of_uri=owner_of_uri,
        are_alike=lambda server, _: server != "apart",
    )
    sender = Sender(MODERN, "p", None, caller=Caller("p"))
    ask = ClientRequest(SERVERS["a"], "POST", sender, [])
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
    ask.envelope = read_envelope(orjson.dumps({**message, "params": {"notifications": wanted, "_meta": {}}}))
    streams = MountStreams(
        cast(Any, SimpleNamespace(handle=handle)), cast(Any, None), cast(Any, lists), SERVERS
    )
    answer = await streams.subscribe(MountRequest(ask))
    pieces = cast(Any, answer.body)
    assert b"acknowledged" in await anext(pieces)
    async with asyncio.timeout(20):
        for _ in range(servers):
            assert b"notifications/message" in await anext(pieces)
    await pieces.aclose()
    assert not lists.listeners.streams
    return sorted(asked)


async def test_what_all_callers_hear_alike_is_asked_for_in_the_adapters_name() -> None:
    """A server that shows each caller something else hears from the caller itself."""
    lists = {"toolsListChanged": True, "promptsListChanged": False}
    assert await asked_for(lists, 3) == [
        Asked("a", lists, own=True),
        Asked("apart", lists, own=False),
        Asked("b", lists, own=True),
    ]


async def test_each_server_hears_of_its_own_resources_alone() -> None:
    """Under the URIs that it knows, from the caller who wants them."""
    wanted = {"resourceSubscriptions": ["b!x:1", "nobody!x:2", "a!x:3", "b!x:1"]}
    assert await asked_for(wanted, 2) == [
        Asked("a", {"resourceSubscriptions": ["x:3"]}, own=False),
        Asked("b", {"resourceSubscriptions": ["x:1"]}, own=False),
    ]
    both = await asked_for({"toolsListChanged": True, "resourceSubscriptions": ["b!x:1"]}, 3)
    assert [(each.server, each.own) for each in both] == [("a", True), ("apart", False), ("b", False)]
    assert both[0].wanted == {"toolsListChanged": True}


async def test_whoever_wants_nothing_asks_no_server() -> None:
    """The stream stays open all the same."""
    assert await asked_for({"toolsListChanged": "yes"}, 0) == await asked_for(None, 0) == []


@pytest.mark.parametrize("uris", ["x:1", [1], ["x:1"] * (MOST_URIS + 1)])
async def test_a_wish_that_is_none_is_refused(uris: object) -> None:
    """No more resources than at a server's own mount."""
    with pytest.raises(RpcRefused, match="at most"):
        await asked_for({"resourceSubscriptions": uris}, 0)
