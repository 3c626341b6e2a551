"""Sessions of callers over HTTP: how they are opened, asked in, given up and closed, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from adapter.errors import (
    AdapterError,
    BadRequest,
    CallTooLong,
    LimitReached,
    UpstreamBroken,
    UpstreamSilent,
    UpstreamUnanswered,
)
from adapter.relay.http_api.conversation import MOST_REPLIES
from adapter.relay.http_api.sessions import HttpSessions, SessionBounds, ToolRefused, Who
from adapter.relay.replies import RESUMPTIONS
from adapter.relay.server import Timeouts
from adapter.relay.stages import Call, StageTable
from adapter.rules.access.principals import Caller
from adapter.rules.access.sessions import SessionLimits, session_key
from adapter.state.sqlite import MemoryStore
from adapter.upstream.port import ReadLimit, UpstreamReply, UpstreamRequest, WholeReply, header
from adapter.wire.eras import Era
from tests.relay.relaying import Relaying, of_tools
from tests.scripted import Expect, ScriptedAnswer, ScriptedUpstream, Step
from tests.waiting import until

SSE = (("Content-Type", "text/event-stream"),)
JSON = ("Content-Type", "application/json")
TOOLS: list[dict[str, Any]] = [{"name": "save", "inputSchema": {"type": "object"}}, {"name": "load"}]
DONE = {"content": [{"type": "text", "text": "done"}]}
CHATTER = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "on"}}
ANN = Who(
    Caller("ann", "http", {"X-Team": "red", "Authorization": "Bearer secret", "Mcp-Name": "other"}), "tab-1"
)


def said(request: UpstreamRequest) -> dict[str, Any]:
    read: dict[str, Any] = orjson.loads(request.body) if request.body else {"method": request.method}
    return read


def asks(method: str) -> Callable[[bytes], bool]:
    return lambda body: orjson.loads(body).get("method") == method


def answer(number: int, result: object, **more: Any) -> ScriptedAnswer:
    body = orjson.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    return ScriptedAnswer(**{"headers": (JSON,), "chunks": [body], **more})


def error(number: int, code: int, message: str = "no") -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})


def data(message: object) -> bytes:
    return b"data: " + (message if isinstance(message, bytes) else orjson.dumps(message)) + b"\n\n"


def opening(session: str = "up-1") -> list[Step]:
    """What a legacy upstream says while a session is opened: ids are counted from 1."""
    result = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "serverInfo": {"name": "u", "version": "1"},
    }
    fields = (JSON, ("Mcp-Session-Id", session))
    return [
        (Expect("POST", asks("initialize")), answer(1, result, headers=fields)),
        (Expect("POST", asks("notifications/initialized")), ScriptedAnswer(202)),
    ]


def call(number: int, result: ScriptedAnswer | Exception) -> Step:
    return (
        Expect("POST", lambda body: asks("tools/call")(body) and orjson.loads(body)["id"] == number),
        result,
    )


LISTED: Step = (Expect("POST", asks("tools/list")), answer(2, {"tools": TOOLS}))
POLL = ScriptedAnswer(headers=SSE, chunks=[b"id: 7\nretry: 0\ndata:\n\n"])
"""The end of a stream whose answer comes on another one."""

ENDED: Step = (Expect("DELETE"), ScriptedAnswer(200))


class Streamless(ScriptedUpstream):
    """One that refuses the stream of a session, unless its transcript has it."""

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream."""
        if (
            request.method == "GET"
            and header(request.headers, "last-event-id") is None
            and not any(each.fits(request) for each in self.unplayed)
        ):
            return WholeReply(405)
        return await super().send(request, read_timeout)


class Serving:
    """A relay in front of a scripted upstream, and the HTTP sessions of its one server."""

    def __init__(self, *steps: Step, stages: StageTable | None = None, **more: Any) -> None:
        self.upstream = Streamless(steps)
        self.relaying = Relaying(self.upstream, stages or StageTable(), MemoryStore())
        self.relaying.server.rules.passthrough = frozenset({"x-team", "authorization"})
        self.sessions = HttpSessions(
            self.relaying.relay,
            self.relaying.sessions,
            self.relaying.server,
            self.relaying.background,
            **more,
        )

    @property
    def methods(self) -> list[str]:
        return [said(request)["method"] for request in self.upstream.requests if "method" in said(request)]

    async def tidy(self) -> None:
        """A round of the cleanup."""
        await asyncio.gather(self.sessions.tidy(), self.relaying.cleanup.run_once())

    async def played(self) -> None:
        """Wait until everything expected has come."""
        await until(lambda: not self.upstream.unplayed)


# --- legacy ---------------------------------------------------------------------------------------------------


async def test_a_call_goes_through_a_session_of_the_callers_own() -> None:
    """Opened once, then asked in, as the client that it is; its result is the upstream's."""
    serving = Serving(*opening(), call(2, answer(2, DONE)), call(3, answer(3, DONE)))
    assert await serving.sessions.call(ANN, "save", {"n": 1}) == DONE
    assert await serving.sessions.call(ANN, "save", {}) == DONE
    assert serving.upstream.unplayed == []
    first = serving.upstream.requests[2]
    assert said(first)["params"] == {"name": "save", "arguments": {"n": 1}}
    assert header(first.headers, "mcp-session-id") == "up-1"
    assert header(first.headers, "mcp-protocol-version") == "2025-06-18"
    assert first.caller.entrance == "http" and first.caller.principal == "ann"
    assert repr(serving.sessions) == "<HttpSessions of 'one': 1>"


async def test_header_fields_of_the_caller_pass_as_they_do_for_clients() -> None:
    """What the server lets through leaves, what carried the adapter's own credential and what MCP says itself stay."""
    serving = Serving(*opening(), call(2, answer(2, DONE)))
    who = Who(Caller("ann", fields=ANN.caller.fields, withheld=frozenset({"authorization"})))
    await serving.sessions.call(who, "save", {})
    headers = serving.upstream.requests[2].headers
    assert header(headers, "x-team") == "red"
    assert header(headers, "authorization") is None and header(headers, "mcp-name") is None


async def test_a_required_header_is_required_here_too() -> None:
    """As on the mount: nothing is sent without it."""
    serving = Serving()
    serving.relaying.server.rules.required = ("X-Key",)
    with pytest.raises(BadRequest, match="X-Key"):
        await serving.sessions.tools(ANN)
    assert serving.upstream.requests == []


async def test_callers_and_tabs_have_sessions_apart() -> None:
    """Two principals, and two tabs of one, never share an upstream session."""
    serving = Serving(*opening("a"), *opening("b"), *opening("c"))
    keys = set()
    for who in (Who(Caller("ann"), "1"), Who(Caller("ann"), "2"), Who(Caller("bob"), "1")):
        serving.upstream.then(*call(2, answer(2, DONE)))
        assert await serving.sessions.key_of(who) is None
        await serving.sessions.call(who, "save", {})
        keys.add(await serving.sessions.key_of(who))
    used = [
        header(each.headers, "mcp-session-id")
        for each in serving.upstream.requests
        if said(each).get("id") == 2
    ]
    assert used == ["a", "b", "c"] and len(keys) == 3


async def test_calls_that_come_at_once_open_one_session() -> None:
    """The second waits for the opening that the first has begun."""
    serving = Serving(*opening(), call(2, answer(2, DONE)), call(3, answer(3, DONE)))
    both = await asyncio.gather(*(serving.sessions.call(ANN, "save", {}) for _ in range(2)))
    assert both == [DONE, DONE] and serving.upstream.unplayed == []


async def test_tools_are_listed_to_the_last_page() -> None:
    """And a tool of a list just read is known without another."""
    pages = [
        (Expect("POST", asks("tools/list")), answer(2, {"tools": TOOLS[:1], "nextCursor": "p2"})),
        (Expect("POST", lambda body: b'"cursor":"p2"' in body), answer(3, {"tools": TOOLS[1:]})),
    ]
    serving = Serving(*opening(), *pages)
    assert await serving.sessions.tools(ANN) == TOOLS
    assert await serving.sessions.tool(ANN, "load") == TOOLS[1]
    assert serving.upstream.unplayed == []


async def test_a_tool_that_is_not_known_is_looked_for_anew() -> None:
    """So a tool that has just come is found, and one that was listed long ago is not taken for granted."""
    serving = Serving(*opening(), LISTED)
    await serving.sessions.tools(ANN)
    new = {"name": "new"}
    serving.upstream.then(Expect("POST", asks("tools/list")), answer(3, {"tools": [new]}))
    assert await serving.sessions.tool(ANN, "new") == new
    serving.relaying.clock.now += 60
    serving.upstream.then(Expect("POST", asks("tools/list")), answer(4, {"tools": []}))
    assert await serving.sessions.tool(ANN, "new") is None


async def test_a_server_without_tools_has_none() -> None:
    """It does not know the method; any other error is one."""
    serving = Serving(
        *opening(), (Expect("POST", asks("tools/list")), ScriptedAnswer(chunks=[error(2, -32601)]))
    )
    assert await serving.sessions.tools(ANN) == []
    serving.upstream.then(
        Expect("POST", asks("tools/list")), ScriptedAnswer(chunks=[error(3, -32603, "broken")])
    )
    with pytest.raises(ToolRefused, match="broken"):
        await serving.sessions.tools(ANN)


async def test_resources_are_listed_and_read() -> None:
    """The same way, for previews."""
    listed = [{"uri": "file:///a", "name": "a"}]
    contents = [{"uri": "file:///a", "text": "x"}]
    serving = Serving(
        *opening(),
        (Expect("POST", asks("resources/list")), answer(2, {"resources": listed})),
        (Expect("POST", asks("resources/read")), answer(3, {"contents": contents})),
        (Expect("POST", asks("resources/read")), answer(4, {"contents": "x"})),
    )
    assert await serving.sessions.listed(ANN, "resources/list") == listed
    assert await serving.sessions.read_resource(ANN, "file:///a") == contents
    with pytest.raises(UpstreamBroken):
        await serving.sessions.read_resource(ANN, "file:///a")


# --- streams --------------------------------------------------------------------------------------------------


async def test_progress_is_told_as_it_comes() -> None:
    """What is about another call, or said when nobody asked, is not."""
    told: list[dict[str, Any]] = []
    heard = asyncio.Event()

    async def tell(progress: dict[str, Any]) -> None:
        told.append(progress)
        heard.set()

    def progress(token: object, **more: object) -> bytes:
        params = {"progressToken": token, "progress": 1, **more}
        return data({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

    finish = asyncio.Event()
    stream: list[bytes | asyncio.Event | Exception] = [
        progress(2, total=4, message="half", secret=1),
        progress(9),
        finish,
        data(error(2, 7, "late")),
    ]
    serving = Serving(*opening(), call(2, ScriptedAnswer(headers=SSE, chunks=stream)))
    running = asyncio.create_task(serving.sessions.call(ANN, "save", {}, tell))
    await heard.wait()
    assert told == [{"progress": 1, "total": 4, "message": "half"}] and not running.done()
    finish.set()
    with pytest.raises(ToolRefused, match="late") as refused:
        await running
    assert refused.value.code == 7 and len(told) == 1
    assert said(serving.upstream.requests[2])["params"]["_meta"] == {"progressToken": 2}


async def test_requests_of_the_server_are_refused_a_few_at_a_time() -> None:
    """However many it makes; none is left out, and the call goes on as fast as the server takes the refusals."""
    count = 5 * MOST_REPLIES
    wants = [data({"jsonrpc": "2.0", "id": f"s{number}", "method": "roots/list"}) for number in range(count)]
    stream = [b"".join(wants), data({"jsonrpc": "2.0", "id": 2, "result": DONE})]
    serving = Serving(*opening(), call(2, ScriptedAnswer(headers=SSE, chunks=stream)))
    taken = asyncio.Event()
    for _ in range(count):
        serving.upstream.then(
            Expect("POST", lambda body: b"-32601" in body), ScriptedAnswer(202, after=taken)
        )
    running = asyncio.create_task(serving.sessions.call(ANN, "save", {}))
    for _ in range(20 * count):
        await asyncio.sleep(0)
    refused = [each for each in serving.upstream.requests if b"-32601" in each.body]
    assert (
        len(refused) == MOST_REPLIES and repr(serving.relaying.background) == "<BackgroundTasks: 16 running>"
    )
    assert not running.done()
    taken.set()
    assert await running == DONE
    await serving.played()


async def test_an_answer_that_is_to_be_fetched_is_fetched() -> None:
    """The upstream ends the stream after an event id and delivers on a later one."""
    rest = ScriptedAnswer(headers=SSE, chunks=[data({"jsonrpc": "2.0", "id": 2, "result": DONE})])
    serving = Serving(*opening(), call(2, POLL), (Expect("GET", headers={"last-event-id": "7"}), rest))
    assert await serving.sessions.call(ANN, "save", {}) == DONE


async def test_a_call_whose_session_ends_amid_its_answer_is_sent_once() -> None:
    """It may have run, and its caller is told so; the next call goes through a new session."""
    serving = Serving(*opening(), call(2, POLL))
    serving.upstream.then(Expect("GET", headers={"last-event-id": "7"}), ScriptedAnswer(404))
    serving.upstream.then(Expect("POST", asks("initialize")), ScriptedAnswer(400))
    with pytest.raises(UpstreamUnanswered, match="the call may have run"):
        await serving.sessions.call(ANN, "save", {})
    assert serving.methods.count("tools/call") == 1 and serving.upstream.unplayed == []


async def test_a_list_whose_session_ends_amid_its_answer_is_asked_for_anew() -> None:
    """It changes nothing, so that the caller hears nothing of the session."""
    serving = Serving(*opening(), (Expect("POST", asks("tools/list")), POLL))
    serving.upstream.then(Expect("GET", headers={"last-event-id": "7"}), ScriptedAnswer(404))
    serving.upstream.then(Expect("POST", asks("initialize")), ScriptedAnswer(400))
    for step in (*opening("up-2"), LISTED):
        serving.upstream.then(*step)
    assert await serving.sessions.tools(ANN) == TOOLS


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_a_stream_that_an_answer_is_put_off_to_takes_time_of_its_call(method: str) -> None:
    """Whatever the server says there, the call ends at its total limit, and the server is told; a list has no such
    limit.
    """
    chatty = ScriptedAnswer(headers=SSE, chunks=[data(CHATTER)] * 3 + [asyncio.Event()])
    resumed = (Expect("GET", headers={"last-event-id": "7"}), chatty)
    told = (Expect("POST", asks("notifications/cancelled")), ScriptedAnswer(202))
    serving = Serving(*opening(), (Expect("POST", asks(method)), POLL), resumed, told)
    total = ReadLimit(0.1, "core.defaults.tool_call_total_seconds")
    serving.relaying.server.timeouts = Timeouts(tool_call=60.0, request=0.2, total=total)
    if method == "tools/list":
        with pytest.raises(UpstreamSilent, match=r"no message for 0\.2 s"):
            await serving.sessions.tools(ANN)
    else:
        with pytest.raises(CallTooLong, match=r"0\.1 s that core\.defaults\.tool_call_total_seconds allows"):
            await serving.sessions.call(ANN, "save", {})
    await serving.played()


async def test_an_answer_that_is_put_off_for_ever_is_given_up() -> None:
    """A server that ends each stream with a new event id, and asks for no pause, never answers."""
    polls = [
        ScriptedAnswer(headers=SSE, chunks=[b"id: %d\nretry: 0\ndata:\n\n" % number])
        for number in range(1, 200)
    ]
    resumed = [
        (Expect("GET", headers={"last-event-id": str(number)}), poll)
        for number, poll in enumerate(polls[1:], 1)
    ]
    serving = Serving(*opening(), call(2, polls[0]), *resumed)
    with pytest.raises(UpstreamBroken, match=f"deferred its answer on {RESUMPTIONS} streams"):
        await serving.sessions.call(ANN, "save", {})
    assert serving.methods.count("GET") == RESUMPTIONS


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (ScriptedAnswer(500, chunks=[b"oops"]), "status 500"),
        (ScriptedAnswer(403, chunks=[b"oops"]), "credentials"),
        (ScriptedAnswer(200, chunks=[b"{}"]), "without a response"),
        (answer(2, [1]), "not a result"),
        (ScriptedAnswer(200, (JSON, ("Content-Encoding", "br")), [b"x"]), "compressed"),
        (ScriptedAnswer(200, SSE, [b": hello\n\n"]), "without a response"),
    ],
)
async def test_what_is_no_answer_is_a_failure_of_the_upstream(reply: ScriptedAnswer, why: str) -> None:
    """Said in a sentence; the session goes on, for there may be files in it."""
    serving = Serving(*opening(), call(2, reply), call(3, answer(3, DONE)))
    with pytest.raises((UpstreamBroken, ToolRefused), match=why):
        await serving.sessions.call(ANN, "save", {})
    assert await serving.sessions.call(ANN, "save", {}) == DONE


# --- giving up ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False], ids=["on its stream", "before its head"])
async def test_cancelling_the_wait_cancels_the_call(streaming: bool) -> None:
    """The exchange is closed, and the upstream told as a client would tell it."""
    never = asyncio.Event()
    reply = (
        ScriptedAnswer(headers=SSE, chunks=[b": hello\n\n", never])
        if streaming
        else ScriptedAnswer(after=never)
    )
    serving = Serving(*opening(), call(2, reply))
    running = asyncio.create_task(serving.sessions.call(ANN, "save", {}))
    await until(lambda: len(serving.upstream.requests) >= 3)
    serving.upstream.then(Expect("POST", asks("notifications/cancelled")), ScriptedAnswer(202))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await serving.played()
    assert said(serving.upstream.requests[-1])["params"]["requestId"] == 2
    serving.upstream.then(*call(3, answer(3, DONE)))
    assert await serving.sessions.call(ANN, "save", {}) == DONE


async def test_a_caller_that_takes_no_more_progress_has_gone() -> None:
    """What telling it raises ends the call, there and here."""

    async def gone(progress: dict[str, Any]) -> None:
        raise ConnectionResetError("gone")

    params = {"progressToken": 2, "progress": 1}
    first = data({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    serving = Serving(*opening(), call(2, ScriptedAnswer(headers=SSE, chunks=[first, asyncio.Event()])))
    serving.upstream.then(Expect("POST", asks("notifications/cancelled")), ScriptedAnswer(202))
    with pytest.raises(ConnectionResetError):
        await serving.sessions.call(ANN, "save", {}, gone)
    await serving.played()


# --- renewing and closing -------------------------------------------------------------------------------------


async def test_a_session_that_ended_is_opened_anew() -> None:
    """The caller knows of no session, so it never hears that one is unknown."""
    serving = Serving(*opening(), call(2, answer(2, DONE)), *opening("up-2"), call(2, answer(2, DONE)))
    await serving.sessions.call(ANN, "save", {})
    key = await serving.sessions.key_of(ANN)
    assert key is not None
    await serving.relaying.sessions.revoke(key, "the tools changed")
    assert await serving.sessions.call(ANN, "save", {}) == DONE
    assert header(serving.upstream.requests[-1].headers, "mcp-session-id") == "up-2"
    assert await serving.sessions.key_of(ANN) != key


async def test_a_session_that_cannot_be_opened_is_not_kept() -> None:
    """The failure is the caller's to see, and the next call tries again."""
    serving = Serving((Expect("POST", asks("initialize")), ScriptedAnswer(401)), *opening(), LISTED)
    with pytest.raises(UpstreamBroken, match="credentials"):
        await serving.sessions.tools(ANN)
    assert repr(serving.sessions) == "<HttpSessions of 'one': 0>"
    assert await serving.sessions.tools(ANN) == TOOLS


@pytest.mark.parametrize("limits", [SessionLimits(), SessionLimits(idle_ttl=8), SessionLimits(idle_ttl=12)])
async def test_idle_sessions_are_closed(limits: SessionLimits) -> None:
    """After the idle time, and not before, also if they rest earlier as all do; one in use is not idle."""
    serving = Serving(*opening(), call(2, answer(2, DONE)), ENDED, bounds=SessionBounds(idle=10))
    serving.relaying.sessions.limits = limits
    await serving.sessions.call(ANN, "save", {})
    serving.relaying.clock.now += 9
    await serving.tidy()
    assert await serving.sessions.key_of(ANN) and await serving.relaying.store.count("sessions") == 1
    serving.relaying.clock.now += 1
    await serving.tidy()
    assert await serving.sessions.key_of(ANN) is None and serving.upstream.unplayed == []
    assert await serving.relaying.store.count("sessions") == 0


async def test_the_session_used_longest_ago_makes_room() -> None:
    """Where there are as many as may be; if all of them are busy, the newcomer has to wait."""
    serving = Serving(
        *opening("a"), *opening("b"), call(2, answer(2, DONE)), ENDED, bounds=SessionBounds(most=1)
    )
    await serving.sessions.call(Who(Caller("ann")), "save", {})
    never = asyncio.Event()
    serving.upstream.then(*call(2, ScriptedAnswer(after=never)))
    running = asyncio.create_task(serving.sessions.call(Who(Caller("bob")), "save", {}))
    await serving.played()
    with pytest.raises(LimitReached):
        await serving.sessions.tools(Who(Caller("eve")))
    never.set()
    with pytest.raises(AdapterError):
        await running


async def test_at_the_end_all_sessions_are_closed() -> None:
    """Upstream too."""
    serving = Serving(*opening("a"), *opening("b"), ENDED, ENDED)
    for name in ("ann", "bob"):
        serving.upstream.then(*call(2, answer(2, DONE)))
        await serving.sessions.call(Who(Caller(name)), "save", {})
    await serving.sessions.close(within=5)
    ended = [each for each in serving.upstream.requests if each.method == "DELETE"]
    assert {header(each.headers, "mcp-session-id") for each in ended} == {"a", "b"}
    assert serving.relaying.sessions.active == 0


async def test_a_server_that_hangs_holds_up_no_stop() -> None:
    """Its session has ended here after the time that was given; the cleanup closes it with the server later."""
    never, dripping = asyncio.Event(), ScriptedAnswer(chunks=[b"x", asyncio.Event()])
    serving = Serving(*opening("a"), *opening("b"))
    serving.relaying.server.timeouts = Timeouts(60, 60)
    serving.upstream.then(Expect("DELETE", headers={"mcp-session-id": "a"}), ScriptedAnswer(after=never))
    serving.upstream.then(Expect("DELETE", headers={"mcp-session-id": "b"}), dripping)
    for name in ("ann", "bob"):
        serving.upstream.then(*call(2, answer(2, DONE)))
        await serving.sessions.call(Who(Caller(name)), "save", {})
    async with asyncio.timeout(20):
        await serving.sessions.close(within=0.05)
    assert serving.relaying.sessions.active == 0
    serving.upstream.then(*ENDED)
    serving.upstream.then(*ENDED)
    await serving.relaying.cleanup.run_once()
    assert serving.upstream.unplayed == []


# --- the road -------------------------------------------------------------------------------------------------


class Stamping:
    """A stage that notes who called, and refuses a tool."""

    def __init__(self) -> None:
        self.callers: list[str] = []

    async def ask(self, call: Call) -> bytes | None:
        self.callers.append(
            f"{call.origin.caller.entrance}:{call.origin.caller.principal}:{call.origin.session}:{call.origin.base}"
        )
        return None

    async def answer(self, call: Call, response: bytes) -> bytes:
        return response


async def test_stages_see_the_call_as_any_other() -> None:
    """With the entrance, the principal, the session and the base that upload URLs begin with."""
    stage = Stamping()
    serving = Serving(*opening(), call(2, answer(2, DONE)), stages=of_tools(save=stage))
    await serving.sessions.call(Who(Caller("ann", "http"), base="http://here"), "save", {})
    key = await serving.sessions.key_of(Who(Caller("ann")))
    assert stage.callers == [f"http:ann:{key}:http://here"]
    assert key != session_key("up-1")


# --- modern ---------------------------------------------------------------------------------------------------

DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
MIRRORED = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


def modern(*steps: Step) -> list[Step]:
    """An upstream that knows no initialize."""
    return [
        (Expect("POST", asks("initialize")), ScriptedAnswer(400, chunks=[error(1, -32600)])),
        (Expect("POST", asks("server/discover")), answer(2, DISCOVERED)),
        *steps,
    ]


async def test_a_modern_upstream_is_asked_without_a_session() -> None:
    """Each request says who asks, and its headers mirror it, the arguments among them that the schema names."""
    tools = [{"name": "save", "inputSchema": MIRRORED}]
    serving = Serving(
        *modern(
            (Expect("POST", asks("tools/list")), answer(3, {"resultType": "complete", "tools": tools})),
            call(4, answer(4, {"resultType": "complete", **DONE})),
        )
    )
    assert await serving.sessions.tools(ANN) == tools
    assert (await serving.sessions.call(ANN, "save", {"region": "eu"}))["content"] == DONE["content"]
    sent = serving.upstream.requests[-1]
    assert said(sent)["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "save"}
    fields |= {"mcp-param-region": "eu"}
    assert {name: header(sent.headers, name) for name in fields} == fields
    assert await serving.sessions.key_of(ANN) is None and header(sent.headers, "mcp-session-id") is None


async def test_the_era_is_found_once() -> None:
    """The next caller does not try the other one; nor does the first where somebody watches the server."""
    listed = (Expect("POST", asks("tools/list")), answer(3, {"tools": TOOLS}))
    serving = Serving(*modern(listed))
    await serving.sessions.tools(Who(Caller("ann")))
    serving.upstream.then(Expect("POST", asks("server/discover")), answer(1, DISCOVERED))
    serving.upstream.then(Expect("POST", asks("tools/list")), answer(2, {"tools": TOOLS}))
    await serving.sessions.tools(Who(Caller("bob")))
    assert serving.methods.count("initialize") == 1 and serving.upstream.unplayed == []
    watched = Serving(era=lambda: Era.MODERN)
    watched.upstream.then(Expect("POST", asks("server/discover")), answer(1, DISCOVERED))
    watched.upstream.then(Expect("POST", asks("tools/list")), answer(2, {"tools": TOOLS}))
    await watched.sessions.tools(ANN)
    assert watched.methods == ["server/discover", "tools/list"]


async def test_a_tool_that_asks_for_input_is_refused() -> None:
    """Nobody could give it over HTTP."""
    serving = Serving(
        *modern(
            (Expect("POST", asks("tools/list")), answer(3, {"tools": TOOLS})),
            call(4, answer(4, {"resultType": "input_required"})),
        )
    )
    await serving.sessions.tools(ANN)
    with pytest.raises(ToolRefused, match="more input"):
        await serving.sessions.call(ANN, "save", {})


async def test_a_server_of_no_known_era_is_said_to_be_one() -> None:
    """It answers, and is no MCP server."""
    serving = Serving(
        (Expect("POST", asks("initialize")), ScriptedAnswer(404)),
        (Expect("POST", asks("server/discover")), ScriptedAnswer(404)),
    )
    with pytest.raises(UpstreamBroken, match="does not support a known version of MCP"):
        await serving.sessions.tools(ANN)
