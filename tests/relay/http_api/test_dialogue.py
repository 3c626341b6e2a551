"""What servers ask a person who calls over HTTP: passed on, answered from anywhere, refused where nobody can answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from adapter.errors import BadRequest, SessionUnknown, UpstreamBroken
from adapter.relay.http_api.callers import InputRequired
from adapter.relay.http_api.dialogue import LONGEST_QUESTION, MOST_QUESTIONS, WINDOW, Dialogue, ReplyAddress
from adapter.relay.http_api.sessions import HttpSessions, ToolRefused, Who
from adapter.relay.server import Timeouts
from adapter.rules.access.principals import NOBODY, Caller
from adapter.wire.eras import Era
from tests.relay.http_api.test_sessions import DONE, SSE, Serving, answer, asks, call, data, opening, said
from tests.scripted import Expect, ScriptedAnswer

PERSON = Who(Caller("ann"), "tab-1", answers=True)
FORM = {"mode": "form", "message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
COUNTED: dict[str, Any] = {"action": "accept", "content": {"count": 2}}


class Heard:
    """The events that came, and a word when the next one does."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.came = asyncio.Event()

    async def __call__(self, event: str, told: dict[str, Any]) -> None:
        self.events.append((event, told))
        self.came.set()


def request(number: object, method: str, params: Any = None) -> bytes:
    return data({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})


Question = tuple[Serving, dict[str, Any]]


@pytest.fixture
async def asked() -> AsyncIterator[Question]:
    """A server that has asked the person whose call runs, and its question; behind the test the call ends."""
    finish, heard = asyncio.Event(), Heard()
    stream: list[Any] = [
        request(7, "elicitation/create", FORM),
        finish,
        data({"jsonrpc": "2.0", "id": 2, "result": DONE}),
    ]
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(405)))
    serving.upstream.then(*call(2, ScriptedAnswer(headers=SSE, chunks=stream)))
    running = asyncio.create_task(serving.sessions.call(PERSON, "save", {}, Dialogue(heard)))
    await heard.came.wait()
    ((event, question),) = heard.events
    assert event == "question" and question["params"] == FORM and not running.done()
    yield serving, question
    finish.set()
    assert await running == DONE


async def test_a_question_is_answered_from_another_process(asked: Question) -> None:
    """The client declared that it can be asked; the answer finds its session by the question alone."""
    serving, question = asked
    relaying = serving.relaying
    other = HttpSessions(relaying.relay, relaying.sessions, relaying.server, relaying.background)
    serving.upstream.then(
        Expect("POST", lambda body: orjson.loads(body) == {"jsonrpc": "2.0", "id": 7, "result": COUNTED}),
        ScriptedAnswer(202),
    )
    await other.answer(PERSON, ReplyAddress.read(question["reply_to"]), COUNTED)
    assert serving.upstream.unplayed == []
    capabilities = said(serving.upstream.requests[0])["params"]["capabilities"]
    assert capabilities == {"elicitation": {"form": {}, "url": {}}}


async def test_only_its_owner_answers_in_a_session(asked: Question) -> None:
    """The address of a question is no key: another principal does not reach the session with it."""
    serving, question = asked
    address = ReplyAddress.read(question["reply_to"])
    for stranger in (Who(Caller("bob"), "tab-1", answers=True), Who(NOBODY)):
        with pytest.raises(SessionUnknown):
            await serving.sessions.answer(stranger, address, COUNTED)


async def test_sampling_is_refused_and_told() -> None:
    """A ping is answered and told to nobody; news of lists and finished links are passed on."""
    heard, finish = Heard(), asyncio.Event()
    stream: list[bytes | asyncio.Event | Exception] = [
        request("s1", "sampling/createMessage"),
        request("s2", "ping"),
        data({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}),
        data(
            {
                "jsonrpc": "2.0",
                "method": "notifications/elicitation/complete",
                "params": {"elicitationId": "e"},
            }
        ),
        data({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}),
        finish,
        data({"jsonrpc": "2.0", "id": 2, "result": DONE}),
    ]
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(405)))
    serving.upstream.then(*call(2, ScriptedAnswer(headers=SSE, chunks=stream)))
    serving.upstream.then(
        Expect("POST", lambda body: b'"s1"' in body and b"-32601" in body), ScriptedAnswer(202)
    )
    serving.upstream.then(
        Expect("POST", lambda body: b'"s2"' in body and b"result" in body), ScriptedAnswer(202)
    )
    running = asyncio.create_task(serving.sessions.call(PERSON, "save", {}, Dialogue(heard)))
    await serving.played()
    finish.set()
    assert await running == DONE
    assert heard.events == [
        ("refused", {"method": "sampling/createMessage"}),
        ("changed", {"list": "prompts"}),
        ("complete", {"elicitationId": "e"}),
    ]


async def test_questions_are_bounded() -> None:
    """In number within a minute, and in size; nobody is asked where nobody takes questions."""
    now = [0.0]
    heard, address = Heard(), ReplyAddress("2025-11-25", "s", 1)
    question = {"method": "elicitation/create", "params": FORM}
    dialogue = Dialogue(heard, clock=lambda: now[0])
    assert all([await dialogue.question(question, address) for _ in range(MOST_QUESTIONS)])
    assert not await dialogue.question(question, address)
    now[0] = WINDOW
    assert await dialogue.question(question, address)
    long = {**FORM, "message": "x" * LONGEST_QUESTION}
    now[0] = 2 * WINDOW
    assert not await dialogue.question({**question, "params": long}, address)
    assert not await dialogue.question({**question, "params": []}, address)
    assert not await Dialogue(heard, is_open=lambda: False).question(question, address)
    assert [event for event, _ in heard.events].count("refused") == 4


@pytest.mark.parametrize("number", [None, True, [7], {"n": 7}, "7" * 3000])
async def test_a_question_that_cannot_be_answered_is_refused(number: object) -> None:
    """A person is not asked for an answer whose address would not be taken."""
    heard = Heard()
    dialogue = Dialogue(heard)
    question = {"method": "elicitation/create", "params": FORM}
    assert not await dialogue.question(question, ReplyAddress("2025-11-25", "s", number))
    assert heard.events == [("refused", {"method": "elicitation/create"})] and dialogue.patience == 0


@pytest.mark.parametrize("text", [None, 7, "", "?", "\xd4", "e30=", "WzEsMiwzXQ==", "x" * 3000, "WyJhIl0="])
def test_what_is_no_address_is_refused(text: object) -> None:
    """Whatever a caller sends in its place."""
    with pytest.raises(BadRequest, match="reply_to"):
        ReplyAddress.read(text)


def test_an_address_comes_back_as_it_left() -> None:
    """With the kind of its number."""
    for number in ("7", 7, 7.5):
        address = ReplyAddress("2025-06-18", "s", number)
        assert ReplyAddress.read(address.encoded()) == address


async def test_a_modern_server_asks_in_its_answer() -> None:
    """The questions are raised with the state; the call goes on with both, and says again what the client can do."""
    asked = {"resultType": "input_required", "inputRequests": {"k": {"method": "m"}}, "requestState": "st"}
    serving = Serving(
        (Expect("POST", asks("server/discover")), answer(1, {"supportedVersions": ["2026-07-28"]})),
        (Expect("POST", asks("tools/list")), answer(2, {"tools": [{"name": "save"}]})),
        call(3, answer(3, asked)),
        call(4, answer(4, DONE)),
        era=lambda: Era.MODERN,
    )
    with pytest.raises(InputRequired) as required:
        await serving.sessions.call(PERSON, "save", {"n": 1})
    assert (required.value.requests, required.value.state) == ({"k": {"method": "m"}}, "st")
    continued = {"inputResponses": {"k": COUNTED}, "requestState": "st"}
    assert await serving.sessions.call(PERSON, "save", {"n": 1}, None, continued) == DONE
    params = said(serving.upstream.requests[-1])["params"]
    meta = params.pop("_meta")
    assert params == {"name": "save", "arguments": {"n": 1}, **continued}
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {"elicitation": {"form": {}, "url": {}}}


async def test_answers_that_the_upstream_does_not_take_are_told(asked: Question) -> None:
    """As the failure of the answer."""
    serving, question = asked
    serving.upstream.then(Expect("POST"), ScriptedAnswer(400))
    with pytest.raises(UpstreamBroken, match="400"):
        await serving.sessions.answer(PERSON, ReplyAddress.read(question["reply_to"]), COUNTED)


async def test_a_person_may_take_longer_than_a_server() -> None:
    """The silence of a server that waits for an answer is no failure; it counts again when the server goes on."""
    serving = Serving(*opening(), (Expect("GET"), ScriptedAnswer(405)))
    serving.relaying.server.timeouts = Timeouts(0.001, 60)
    finish, heard = asyncio.Event(), Heard()
    progress = {"method": "notifications/progress", "params": {"progressToken": 2, "progress": 1}}
    stream: list[Any] = [request(7, "elicitation/create", FORM), finish]
    stream += [data({"jsonrpc": "2.0", **progress}), asyncio.Event()]
    serving.upstream.then(*call(2, ScriptedAnswer(headers=SSE, chunks=stream)))
    running = asyncio.create_task(serving.sessions.call(PERSON, "save", {}, Dialogue(heard)))
    await heard.came.wait()
    await asyncio.sleep(0.01)  # many times what the server has otherwise
    assert not running.done()
    finish.set()
    with pytest.raises(ToolRefused, match="sent nothing"):
        await running
    assert [event for event, _ in heard.events] == ["question", "progress"]
