"""``notifications/resources/list_changed`` of the adapter's own: on which streams, when, and between which events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import UpstreamBroken
from adapter.relay.call.get_streams import noticing
from adapter.relay.notifications import MOST_WAITING, RESOURCES_CHANGED, Inbox, Notifications
from adapter.rules.access.principals import principal_scope
from adapter.upstream.port import UpstreamRequest
from tests.relay.relaying import pieces, whole
from tests.relay.tooling import META, SSE, Tools, artifact_of, parsed, producing, result, tools, writing
from tests.scripted import ScriptedAnswer

SCOPE = principal_scope(b"", "somebody")
HELLO = b": hello\n\n"


def listening(request: UpstreamRequest) -> ScriptedAnswer:
    """An upstream whose GET streams stay open, and whose tool writes."""
    if request.method == "GET":
        return ScriptedAnswer(headers=SSE, chunks=[HELLO, asyncio.Event()])
    return writing(b"made", result('"content":[]'))(request)


async def stream_of(
    process: Tools, session: str, last_event_id: str | None = None
) -> AsyncGenerator[bytes, None]:
    """A GET stream of that session, its first event read."""
    ask = process.ask(b"", session, method="GET", last_event_id=last_event_id)
    answer = await process.relaying.relay.handle(ask)
    stream = pieces(answer)
    assert await anext(stream) == HELLO
    process.opened.append(answer)
    return stream


# --- in a session ---------------------------------------------------------------------------------------------


async def test_sessions_stream_says_that_an_artifact_came(tmp_path: Path) -> None:
    """On the stream that the client opened; nobody else's says anything."""
    async with tools(tmp_path, listening) as one:
        other_session = await one.relaying.open()
        mine, others = await stream_of(one, one.session), await stream_of(one, other_session)
        artifact_of(await one.call("write", "{}"))
        assert await anext(mine) == RESOURCES_CHANGED
        waiting = asyncio.ensure_future(anext(others))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_stream_that_was_resumed_goes_on_to_say_it(tmp_path: Path) -> None:
    """A client whose connection was lost comes back with the last event's id."""
    async with tools(tmp_path, listening) as one:
        stream = await stream_of(one, one.session, "7")
        artifact_of(await one.call("write", "{}"))
        assert await anext(stream) == RESOURCES_CHANGED


async def test_what_is_not_listed_is_no_news(tmp_path: Path) -> None:
    """Neither an artifact that is not exposed nor a call that gave none."""
    async with tools(tmp_path, listening, producing=producing(exposed=False)) as one:
        mine = await stream_of(one, one.session)
        artifact_of(await one.call("write", "{}"))
        waiting = asyncio.ensure_future(anext(mine))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_session_without_a_stream_is_not_told(tmp_path: Path) -> None:
    """Also when it had one that is over."""
    async with tools(tmp_path, listening) as one:
        await stream_of(one, one.session)
        await one.opened.pop().close()
        artifact_of(await one.call("write", "{}"))
        assert repr(one.relaying.relay.get_streams.notifications) == "<Notifications: 0 sessions listen>"
        assert one.upstream.replies[0].aborted


# --- streams and inboxes --------------------------------------------------------------------------------------


async def test_each_session_gets_one_word_on_its_newest_stream() -> None:
    """A scope that several sessions share tells each of them; said twice before it was taken is said once."""
    notifications = Notifications()
    older, newer = notifications.open(SCOPE, "a"), notifications.open(SCOPE, "a")
    other = notifications.open(SCOPE, "b")
    notifications.resources_changed(SCOPE)
    notifications.resources_changed(SCOPE)
    assert [await _held(inbox) for inbox in (older, newer, other)] == [
        b"",
        RESOURCES_CHANGED,
        RESOURCES_CHANGED,
    ]
    for session, inbox in (("a", newer), ("a", newer), ("b", other)):
        notifications.close(SCOPE, session, inbox)
    notifications.resources_changed(SCOPE)
    assert await _held(older) == RESOURCES_CHANGED and await _held(newer) == b""


async def test_resumed_stream_is_the_last_resort() -> None:
    """It may be the rest of a call's stream; where it is all there is, it is better than silence."""
    notifications = Notifications()
    opened, resumed = notifications.open(SCOPE, "a"), notifications.open(SCOPE, "a", resumed=True)
    notifications.resources_changed(SCOPE)
    assert await _held(opened) == RESOURCES_CHANGED and await _held(resumed) == b""
    notifications.close(SCOPE, "a", opened)
    notifications.resources_changed(SCOPE)
    assert await _held(resumed) == RESOURCES_CHANGED


async def _held(inbox: Inbox) -> bytes:
    """What waits to be said, if anything does."""
    try:
        return await asyncio.wait_for(inbox.take(), 0.01)
    except TimeoutError:
        return b""


async def _stream(*steps: bytes | asyncio.Event | Exception) -> AsyncGenerator[bytes, None]:
    for step in steps:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, asyncio.Event):
            await step.wait()
        else:
            yield step


async def test_notice_stands_between_whole_events() -> None:
    """It neither delays nor loses what the upstream says, and ends with the upstream's stream."""
    inbox, go_on = Inbox(), asyncio.Event()
    stream = noticing(_stream(b"1\n\n", go_on, b"2\n\n", b"3\n\n"), inbox)
    assert await anext(stream) == b"1\n\n"
    inbox.put(b"news\n\n")
    assert await anext(stream) == b"news\n\n"
    go_on.set()
    assert [piece async for piece in stream] == [b"2\n\n", b"3\n\n"]


async def test_failure_of_the_stream_is_passed_on() -> None:
    """Whoever reads learns of it, and nothing goes on in the background."""
    stream = noticing(_stream(b"1\n\n", UpstreamBroken()), Inbox())
    assert await anext(stream) == b"1\n\n"
    with pytest.raises(UpstreamBroken):
        await anext(stream)
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("begun", [True, False])
async def test_stream_that_is_given_up_ends_everything(begun: bool) -> None:
    """The client goes while the upstream is silent."""
    stream = noticing(_stream(b"1\n\n", asyncio.Event()), Inbox())
    if begun:
        await anext(stream)
    await stream.aclose()
    assert len(asyncio.all_tasks()) == 1


# --- subscriptions --------------------------------------------------------------------------------------------


def subscribing(agreed: str, *more: bytes) -> Callable[[UpstreamRequest], ScriptedAnswer]:
    """An upstream that acknowledges a subscription with these notifications (JSON), and whose tool writes."""
    acknowledged = (
        b'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",'
        b'"params":{"n": 1.50,"notifications":%b}}\n\n' % agreed.encode()
    )

    def act(request: UpstreamRequest) -> ScriptedAnswer:
        if b"subscriptions/listen" in request.body:
            return ScriptedAnswer(headers=SSE, chunks=[acknowledged, *more, asyncio.Event()])
        return writing(b"made", result('"content":[],"resultType":"complete"'))(request)

    return act


async def subscribed(process: Tools, wanted: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
    """The stream of a modern client's subscription."""
    params = {"notifications": wanted, "_meta": META}
    body = orjson.dumps({"jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": params})
    answer = await process.relaying.relay.handle(process.ask(body, None))
    process.opened.append(answer)
    return pieces(answer)


async def written(process: Tools) -> None:
    params = {"name": "write", "arguments": {}, "_meta": META}
    artifact_of(await process.request("tools/call", params, modern=True))


WANTED = {"resourcesListChanged": True}


@pytest.mark.parametrize(
    ("agreed", "leaves"),
    [
        ('{"resourcesListChanged":true}', '{"resourcesListChanged":true}'),
        ("{}", '{"resourcesListChanged":true}'),
        ('{"toolsListChanged":true}', '{"toolsListChanged":true,"resourcesListChanged":true}'),
        ('{"resourcesListChanged":false}', '{"resourcesListChanged":true}'),
    ],
)
async def test_subscription_hears_that_an_artifact_came_and_went(
    tmp_path: Path, agreed: str, leaves: str
) -> None:
    """Under its own id, behind the word that it is agreed to, which is added where the upstream has no such news."""
    async with tools(tmp_path, subscribing(agreed)) as one:
        one.registry.on_gone.append(
            lambda record: one.notifications.resources_changed(principal_scope(b"", "anonymous"))
        )
        stream = await subscribed(one, WANTED)
        assert b'"params":{"n": 1.50,"notifications":%b}' % leaves.encode() in await anext(stream)
        await written(one)
        event = parsed(await anext(stream))
        assert event == {
            "jsonrpc": "2.0",
            "method": "notifications/resources/list_changed",
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": "s-1"}},
        }
        one.clock.now += 101
        await one.registry.expire()
        assert parsed(await anext(stream)) == event


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": True}, {"resourcesListChanged": False}])
async def test_subscription_to_something_else_hears_nothing_of_it(
    tmp_path: Path, wanted: dict[str, Any]
) -> None:
    """What was not asked for must not be sent; the upstream's words pass as they come."""
    words = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
    async with tools(tmp_path, subscribing('{"x":1}', words)) as one:
        stream = await subscribed(one, wanted)
        assert b'"notifications":{"x":1}' in await anext(stream)
        await written(one)
        assert await anext(stream) == words


async def test_subscription_that_is_over_holds_nothing(tmp_path: Path) -> None:
    """Nor one that its upstream refuses."""

    def refusing(request: UpstreamRequest) -> ScriptedAnswer:
        error = b'{"jsonrpc":"2.0","id":"s-1","error":{"code":-32601,"message":"Method not found"}}'
        return ScriptedAnswer(404, chunks=[error])

    async with tools(tmp_path, subscribing("{}")) as one:
        stream = await subscribed(one, WANTED)
        await anext(stream)
        await one.opened.pop().close()
        await written(one)
        assert one.upstream.replies[0].aborted
    async with tools(tmp_path, refusing) as one:
        params = {"notifications": WANTED, "_meta": META}
        body = orjson.dumps(
            {"jsonrpc": "2.0", "id": "s-1", "method": "subscriptions/listen", "params": params}
        )
        answer = await one.relaying.relay.handle(one.ask(body, None))
        assert answer.status == 404 and b"Method not found" in await whole(answer)


async def test_a_client_that_does_not_read_misses_the_oldest_events() -> None:
    """So many wait for it, whatever happens meanwhile."""
    inbox = Inbox()
    events = [b"data: %d\n\n" % number for number in range(MOST_WAITING + 10)]
    for event in events:
        inbox.put(event)
    assert await inbox.take() == b"".join(events[10:])
