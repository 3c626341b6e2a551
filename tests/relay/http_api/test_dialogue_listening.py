"""One stream of a session for all who listen in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapter.relay.http_api.dialogue import Dialogue
from adapter.relay.http_api.sessions import SessionBounds, Who
from adapter.rules.access.principals import Caller
from tests.relay.http_api.test_dialogue import FORM, PERSON, Heard, request
from tests.relay.http_api.test_sessions import DONE, SSE, Serving, answer, call, data, opening
from tests.scripted import Expect, ScriptedAnswer

CHANGED = data({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})


async def test_a_question_beside_the_call_reaches_the_call() -> None:
    """Some servers ask on the stream of the session; who only follows the news does not get it."""
    finish, asking = asyncio.Event(), asyncio.Event()
    beside: list[Any] = [CHANGED, asking, request(7, "elicitation/create", FORM), asyncio.Event()]
    ending: list[Any] = [finish, data({"jsonrpc": "2.0", "id": 2, "result": DONE})]
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(headers=SSE, chunks=beside)))
    news, heard = Heard(), Heard()
    following = asyncio.create_task(serving.sessions.listen(PERSON, news))
    await news.came.wait()
    serving.upstream.then(*call(2, ScriptedAnswer(headers=SSE, chunks=ending)))
    running = asyncio.create_task(serving.sessions.call(PERSON, "save", {}, Dialogue(heard)))
    await serving.played()
    asking.set()
    await heard.came.wait()
    assert [event for event, _ in heard.events] == ["question"]
    assert news.events == [("changed", {"list": "resources"})]
    finish.set()
    assert await running == DONE
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_question_that_nobody_waits_for_is_refused() -> None:
    """A server that asks outside of any call gets its refusal, and does not wait."""
    beside: list[Any] = [request(7, "elicitation/create", FORM), asyncio.Event()]
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(headers=SSE, chunks=beside)))
    serving.upstream.then(Expect("POST", lambda body: b"-32601" in body), ScriptedAnswer(202))
    news = Heard()
    following = asyncio.create_task(serving.sessions.listen(PERSON, news))
    await serving.played()
    assert news.events == []
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_server_without_such_a_stream_is_left_alone() -> None:
    """Following it ends at once, and it is asked for no more by calls."""
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(405)))
    await serving.sessions.listen(PERSON, Heard())
    assert [each.method for each in serving.upstream.requests] == ["POST", "POST", "GET"]
    for number in (2, 3):
        serving.upstream.then(*call(number, answer(number, DONE)))
        assert await serving.sessions.call(PERSON, "save", {}) == DONE
    assert [each.method for each in serving.upstream.requests] == ["POST", "POST", "GET", "POST", "POST"]


@pytest.mark.parametrize(
    "refusal",
    [
        ScriptedAnswer(404),
        ScriptedAnswer(404, [("Content-Type", "text/plain")], [b"Cannot GET /mcp"]),
        ScriptedAnswer(200, [("Content-Type", "text/html")], [b"<p>Hello</p>"]),
        ScriptedAnswer(200, [("Content-Type", "application/json")], [b"{}"]),
    ],
)
async def test_a_server_that_knows_no_such_request_keeps_its_session(refusal: ScriptedAnswer) -> None:
    """Its 404 is no word on the session, which would be opened anew with each call, and is asked for once."""
    serving = Serving(*opening(), (Expect("GET"), refusal))
    for number in (2, 3):
        serving.upstream.then(*call(number, answer(number, DONE)))
        assert await serving.sessions.call(PERSON, "save", {}) == DONE
    assert [each.method for each in serving.upstream.requests] == ["POST", "POST", "GET", "POST", "POST"]


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
async def test_a_question_beside_the_call_of_somebody_who_answers_none_is_refused(method: str) -> None:
    """A tool that asks on the stream of the session goes on at once; the stream serves all calls of the session."""
    asking, refused = asyncio.Event(), asyncio.Event()
    beside: list[Any] = [asking, request(7, method, {}), asyncio.Event()]
    ending: list[Any] = [refused, data({"jsonrpc": "2.0", "id": 2, "result": DONE})]
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(headers=SSE, chunks=beside)))
    serving.upstream.then(*call(2, ScriptedAnswer(headers=SSE, chunks=ending)))
    ann = Who(Caller("ann"), "tab-1")
    running = asyncio.create_task(serving.sessions.call(ann, "save", {}))
    await serving.played()
    serving.upstream.then(Expect("POST", lambda body: b"-32601" in body), ScriptedAnswer(202))
    asking.set()
    await serving.played()
    refused.set()
    assert await running == DONE
    serving.upstream.then(*call(3, answer(3, DONE)))
    assert await serving.sessions.call(ann, "save", {}) == DONE
    assert [each.method for each in serving.upstream.requests].count("GET") == 1
    serving.upstream.then(Expect("DELETE"), ScriptedAnswer(200))
    await serving.sessions.close(1.0)
    assert serving.upstream.unplayed == []


async def test_calls_over_http_leave_streams_to_others() -> None:
    """Only so many sessions keep a stream that nobody asked for; the calls of others go on without."""
    beside = ScriptedAnswer(headers=SSE, chunks=[asyncio.Event()])
    serving = Serving(*opening("a"), (Expect("GET"), beside), bounds=SessionBounds(streams=1))
    for step in (call(2, answer(2, DONE)), *opening("b"), call(2, answer(2, DONE)), call(3, answer(3, DONE))):
        serving.upstream.then(*step)
    for tab in ("one", "two", "one"):
        assert await serving.sessions.call(Who(Caller("ann"), tab), "save", {}) == DONE
    assert [each.method for each in serving.upstream.requests].count("GET") == 1
    for _ in range(2):
        serving.upstream.then(Expect("DELETE"), ScriptedAnswer(200))
    await serving.sessions.close(1.0)
    assert serving.upstream.unplayed == []
