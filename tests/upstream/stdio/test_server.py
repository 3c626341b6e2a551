"""Sessions whose answers come from processes: what a client sends and gets, seen over the port of any upstream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapter.errors import LimitReached, UpstreamSilent, UpstreamUnanswered, UpstreamUnreachable
from adapter.rules.access.principals import NOBODY
from adapter.upstream.local.upstream import LocalUpstream
from adapter.upstream.port import UpstreamRequest
from adapter.upstream.stdio.server import StdioServer
from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import lives, vanished
from tests.upstream.stdio.scripted import (
    LEGACY,
    MODERN_META,
    MODES,
    PATIENCE,
    SERVER,
    Client,
    Setup,
    call,
    events,
    message,
    next_events,
    opened,
    read,
    running,
)
from tests.waiting import until


@pytest.fixture
async def upstream(supervisor: Supervisor) -> AsyncIterator[LocalUpstream[StdioServer]]:
    """A server with one process for each session."""
    async with running(supervisor, Setup()) as upstream:
        yield upstream


async def test_each_session_has_a_process_of_its_own(upstream: LocalUpstream[StdioServer]) -> None:
    """Two sessions of one principal reach two processes, each the same one again."""
    one, other = await opened(upstream), await opened(upstream)
    pids = [(await client.result("who"))["pid"] for client in (one, other, one)]
    assert pids[0] != pids[1] and pids[0] == pids[2]
    assert upstream.server.use.running == 2


async def test_sessions_of_the_adapter_itself_share_a_process(upstream: LocalUpstream[StdioServer]) -> None:
    """It pings in one session and reads lists in another; clients without a name have processes of their own."""
    own = [Client(upstream), Client(upstream)]
    for client in own:
        client.caller = NOBODY
        await client.initialize()
    nameless = await opened(upstream, NOBODY.principal)
    pids = [(await client.result("who"))["pid"] for client in (*own, nameless)]
    assert pids[0] == pids[1] != pids[2]


async def test_a_body_of_many_lines_reaches_the_process_as_one(upstream: LocalUpstream[StdioServer]) -> None:
    """Line ends between tokens are left out; those in strings are escapes and stay."""
    client = await opened(upstream)
    body = (
        b'{\r\n "jsonrpc": "2.0",\n "id": 1,\n "method": "tools/call",\n'
        b' "params": {\n  "name": "who",\n  "arguments": {"text": "a\\nb"}\n }\n}\n'
    )
    answer = orjson.loads(await read(await client.send(body)))
    assert answer["result"]["seen"] == {"text": "a\nb"}


async def test_progress_comes_on_the_stream_of_its_request(upstream: LocalUpstream[StdioServer]) -> None:
    """Its events are numbered, and the answer is the last of them."""
    client = await opened(upstream)
    body = await read(await client.call("progress", token="t", n=2))
    first, second, answer = events(body)
    assert [each["params"]["progress"] for each in (first, second)] == [0, 1]
    assert answer["result"] == {"done": True}
    assert body.startswith(b"id: 1-1\ndata: ")


async def test_a_request_that_nobody_listens_to_opens_no_stream(upstream: LocalUpstream[StdioServer]) -> None:
    """Messages would be lost on the stream of a request of the adapter's own, so it is answered as JSON."""
    client = await opened(upstream)
    fields = [("Accept", "application/json, text/event-stream"), ("Mcp-Session-Id", client.session or "")]
    body = call("progress", token="t", n=2)
    reply = await upstream.send(UpstreamRequest("POST", fields, body, client.caller, listens=False), PATIENCE)
    assert orjson.loads(reply.whole or b"")["result"] == {"done": True}


async def test_a_get_stream_goes_on_behind_the_last_event(upstream: LocalUpstream[StdioServer]) -> None:
    """A client that names the last event it read gets those behind it."""
    client = await opened(upstream)
    listening = await client.listen()
    await client.result("log", n=3)
    await next_events(listening, 3)
    listening.abort()
    again = await client.listen("1-1")
    assert [each["params"]["data"] for each in await next_events(again, 2)] == [1, 2]


async def test_the_stream_of_a_call_can_be_resumed(upstream: LocalUpstream[StdioServer]) -> None:
    """A client that lost it gets the rest, the answer too, on a GET with the last event's id."""
    client = await opened(upstream)
    held = await client.call("hold", 1)
    assert (await held.read(PATIENCE)).startswith(b"id: 1-1\n")
    held.abort()
    resumed = await client.listen("1-1")
    await client.result("release", 2)
    assert [each["result"] for each in events(await read(resumed))] == [{"released": True}]


async def test_a_server_asks_its_client(upstream: LocalUpstream[StdioServer]) -> None:
    """The request arrives on the GET stream, and the client's response at the process."""
    client = await opened(upstream)
    listening = await client.listen()
    waits = asyncio.create_task(client.result("ask", method="roots/list"))
    (asked,) = await next_events(listening)
    assert (asked["id"], asked["method"]) == ("q", "roots/list")
    response = b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}'
    assert (await client.send(response)).status == 202
    assert (await waits) == {"answered": {"roots": []}}


async def test_a_cancellation_is_forwarded(upstream: LocalUpstream[StdioServer]) -> None:
    """The process reads the client's own words, and the request is answered with nothing."""
    client = await opened(upstream)
    listening = await client.listen()
    waits = asyncio.create_task(client.call("hold", 5))
    await next_events(listening)
    await client.send(message("notifications/cancelled", params={"requestId": 5}))
    assert (await next_events(listening))[0]["params"]["data"] == "cancelled 5 known"
    assert (await waits).status == 202


async def test_delete_ends_the_process(upstream: LocalUpstream[StdioServer]) -> None:
    """Nothing of it is left, and the session is unknown."""
    client = await opened(upstream)
    pid = (await client.result("who"))["pid"]
    assert await client.delete() == 200
    assert await vanished([pid], PATIENCE)
    assert (await client.call("who")).status == 404


async def test_a_batch_is_answered_whole(upstream: LocalUpstream[StdioServer]) -> None:
    """Batches exist in 2025-03-26 only; each member is a line of its own for the process."""
    client = Client(upstream)
    await client.initialize("2025-03-26")
    note = message("notifications/cancelled", params={"requestId": 9})
    body = b"[" + call("who", 1, n=1) + b"," + note + b"," + message("ping", 2) + b"]"
    answers = orjson.loads(await read(await client.send(body)))
    assert {each["id"] for each in answers} == {1, 2}


# --- the end of a process ---------------------------------------------------------------------------------------


async def test_a_crash_answers_what_was_under_way(upstream: LocalUpstream[StdioServer]) -> None:
    """The failure names the server and the exit; the session is unknown after it, and others go on."""
    client, other = await opened(upstream), await opened(upstream)
    with pytest.raises(UpstreamUnanswered) as raised:
        await client.call("exit", code=3)
    assert str(raised.value) == (
        'Server "scripted": The server\'s process ended with exit code 3. The call may have run.'
    )
    assert raised.value.reason is not None and "the last words" in raised.value.reason
    assert (await client.call("who")).status == 404
    assert (await other.result("who"))["seen"] == {}


async def test_a_process_that_does_not_start_is_told(supervisor: Supervisor) -> None:
    """The failure says why, and further starts wait for longer and longer."""
    program = "import sys; sys.stderr.write('no configuration\\n'); sys.exit(4)"
    async with running(supervisor, Setup(program=program)) as upstream:
        with pytest.raises(UpstreamUnreachable) as raised:
            await Client(upstream).initialize()
        assert "exit code 4" in str(raised.value) and "no configuration" not in str(raised.value)
        with pytest.raises(UpstreamUnreachable, match="not started again for") as raised:
            await Client(upstream).initialize()
        assert raised.value.retry_after is not None and raised.value.reason is not None
        assert "no configuration" in raised.value.reason


async def test_a_refused_initialize_leaves_no_process(supervisor: Supervisor) -> None:
    """The client gets the server's own error, and no session."""
    async with running(supervisor, Setup(arguments=("--refuse",))) as upstream:
        client = Client(upstream)
        reply = await client.initialize()
        assert orjson.loads(await read(reply))["error"] == {"code": -32000, "message": "no"}
        assert client.session is None
        await until(lambda: not (upstream.server.use.running), PATIENCE)


async def test_closing_amid_starts_leaves_nothing(supervisor: Supervisor, tmp_path: Path) -> None:
    """Also a process that is just being started is gone when the upstream has closed."""
    program = f"import os; open('{tmp_path}/' + str(os.getpid()), 'w').close()\n" + SERVER
    for turns in range(0, 40, 4):
        async with running(supervisor, Setup(program=program)) as upstream:
            waits = [asyncio.create_task(Client(upstream).initialize()) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0.001)
        await asyncio.gather(*waits, return_exceptions=True)
    assert await vanished([int(each.name) for each in tmp_path.iterdir()], PATIENCE)


# --- limits -----------------------------------------------------------------------------------------------------


async def test_no_more_processes_than_allowed(supervisor: Supervisor) -> None:
    """One more is refused by the name of the setting, and has room when a session has ended, at once."""
    async with running(supervisor, Setup(limits={"max_processes": 1})) as upstream:
        client = await opened(upstream)
        with pytest.raises(LimitReached, match="max_processes"):
            await Client(upstream).initialize()
        await client.delete()
        second = await opened(upstream)
        assert upstream.server.use.running == 1
        with pytest.raises(LimitReached, match="max_processes"):
            await Client(upstream).initialize()
        await second.result("who")


async def test_a_process_makes_room_for_one_other(supervisor: Supervisor) -> None:
    """It is stopped for one new session, which starts when it is gone; those that find no other are refused."""
    slow = SERVER + "time.sleep(600)"
    limits = {"max_processes": 2}
    async with running(supervisor, Setup(limits=limits, spare=0, program=slow)) as upstream:
        pids = [(await (await opened(upstream)).result("who"))["pid"] for _ in range(2)]
        newer = [Client(upstream) for _ in range(4)]
        opening = [asyncio.create_task(client.initialize()) for client in newer]
        for each in asyncio.as_completed(opening[:2]):
            await each
            assert sum(map(lives, pids)) <= 1
        found = await asyncio.gather(*opening, return_exceptions=True)
        assert [isinstance(each, LimitReached) for each in found] == [False, False, True, True]
        assert not any(map(lives, pids))


async def test_a_start_that_fails_delays_its_own_principal_only(supervisor: Supervisor) -> None:
    """A client whose initialize no process survives keeps nobody else from opening a session."""
    async with running(supervisor, Setup()) as upstream:
        eve = Client(upstream, "eve")
        with pytest.raises(UpstreamUnreachable, match="exit code 1"):
            await eve.initialize(crash={})
        with pytest.raises(UpstreamUnreachable, match="not started again for"):
            await eve.initialize()
        await Client(upstream, "ada").initialize()


async def test_an_idle_process_rests(supervisor: Supervisor) -> None:
    """It is stopped, its session still answers pings, and any other request is told to initialize again."""
    async with running(supervisor, Setup(limits={"idle_ttl_seconds": 0.2})) as upstream:
        client = await opened(upstream)
        pid = (await client.result("who"))["pid"]
        assert await vanished([pid], PATIENCE)
        await until(lambda: not upstream.server.use.running, PATIENCE)
        ping = await client.send(message("ping", 3))
        assert orjson.loads(await read(ping)) == {"jsonrpc": "2.0", "id": 3, "result": {}}
        assert upstream.server.use.running == 0
        assert (await client.call("who")).status == 404


@pytest.mark.timed
async def test_a_process_with_a_listener_does_not_rest(supervisor: Supervisor) -> None:
    """A client that holds a GET stream is there, also while it asks nothing."""
    async with running(supervisor, Setup(limits={"idle_ttl_seconds": 0.2})) as upstream:
        client, idle = await opened(upstream), await opened(upstream)
        listening = await client.listen()
        gone = (await idle.result("who"))["pid"]
        assert await vanished([gone], PATIENCE)
        assert (await client.result("who"))["seen"] == {}
        listening.abort()


async def test_a_slow_reader_slows_its_process(upstream: LocalUpstream[StdioServer]) -> None:
    """Nothing is lost: the process waits until its client has read."""
    client = await opened(upstream)
    reply = await client.call("progress", token=1, n=2000, size=2000)
    assert len(events(await read(reply))) == 2001


async def test_a_line_that_is_no_message_is_dropped(upstream: LocalUpstream[StdioServer]) -> None:
    """Output that some programs print by mistake harms nothing."""
    client = await opened(upstream)
    waits = asyncio.create_task(client.call("raw", 4, line="Listening on stdio\n[1,2]\n{}"))
    assert (await client.result("who"))["seen"] == {}
    waits.cancel()


async def test_an_answer_that_is_too_long_fails_its_request(supervisor: Supervisor) -> None:
    """The request that it belongs to is told; the session goes on."""
    async with running(supervisor, Setup(line_bytes=10_000)) as upstream:
        client = await opened(upstream)
        line = '{"jsonrpc":"2.0","id":7,"result":{"text":"' + "x" * 20_000 + '"}}'
        with pytest.raises(Exception, match="max_answer_bytes"):
            await client.call("raw", 7, line=line)
        assert (await client.result("who"))["seen"] == {}


# --- clients that ask for the era first -------------------------------------------------------------------------


async def asked_for_the_era(client: Client) -> Any:
    """The answer to ``server/discover``, with which a client of both eras begins."""
    body = message("server/discover", 1, {"_meta": MODERN_META})
    return orjson.loads(await read(await client.send(body, modern="server/discover")))


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_asks_for_the_era_waits_for_one_start(
    supervisor: Supervisor, tmp_path: Path, mode: str
) -> None:
    """The process that refused the modern era opens the session, also for a second client where they share it."""
    program = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n" + LEGACY
    async with running(supervisor, Setup(mode, program=program)) as upstream:
        pids: list[int] = []
        for _ in range(2):
            client = Client(upstream)
            assert (await asked_for_the_era(client))["error"]["code"] == -32601
            await client.initialize()
            pids.append((await client.result("who", seen=len(pids)))["pid"])
        shared = mode != "per_session"
        assert (pids[0] == pids[1]) == shared
        assert (tmp_path / "starts").read_text() == "x" * (1 if shared else 2)


@pytest.mark.parametrize("mode", ["per_principal", "shared"])
async def test_a_session_and_a_client_of_no_session_share_a_process(
    supervisor: Supervisor, mode: str
) -> None:
    """Where the process of the sessions says that it speaks the modern era too."""
    async with running(supervisor, Setup(mode)) as upstream:
        session = await opened(upstream)
        client = Client(upstream)
        assert "result" in await asked_for_the_era(client)
        reply = await client.send(call("who", 2, modern=True), modern="tools/call")
        found = orjson.loads(await read(reply))["result"]["pid"]
        assert found == (await session.result("who"))["pid"]


async def test_a_process_of_the_modern_era_is_told_no_initialize(supervisor: Supervisor) -> None:
    """It could take that for the handshake of the other era, so a session gets a process of its own."""
    async with running(supervisor, Setup("per_principal")) as upstream:
        client = Client(upstream)
        assert "result" in await asked_for_the_era(client)
        reply = await client.send(call("who", 2, modern=True), modern="tools/call")
        session = await opened(upstream)
        assert orjson.loads(await read(reply))["result"]["pid"] != (await session.result("who"))["pid"]


async def test_a_process_of_the_modern_era_survives_a_refused_session(supervisor: Supervisor) -> None:
    """A client of the other era is told no, and those that use the process notice nothing."""
    setup = Setup("per_principal", arguments=("--refuse",))
    async with running(supervisor, setup) as upstream:
        client = Client(upstream)
        _, answer = await asyncio.gather(Client(upstream).initialize(), asked_for_the_era(client))
        assert "result" in answer
        first = await client.send(call("who", 2, modern=True), modern="tools/call")
        await Client(upstream).initialize()
        again = await client.send(call("who", 2, modern=True), modern="tools/call")
        assert await read(first) == await read(again)
        await until(lambda: upstream.server.use.running <= 1, PATIENCE)


STRICT = LEGACY.replace(
    'method == "server/discover":', 'method == "server/discover": sys.exit(1)\n    elif method == "never":'
)
"""One that ends at any request ahead of ``initialize``, as some kits for servers do."""

NEVER_OPEN = LEGACY.replace('"crash" in params["capabilities"]', "True")
"""One that refuses the modern era, and ends at ``initialize``."""


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_does_not_survive_the_question_still_opens_sessions(
    supervisor: Supervisor, mode: str
) -> None:
    """At once, also where there may be one process: what failed for the modern era says nothing of the other one."""
    async with running(supervisor, Setup(mode, {"max_processes": 1}, program=STRICT)) as upstream:
        client = Client(upstream)
        with pytest.raises(UpstreamUnreachable, match="exit code 1"):
            await asked_for_the_era(client)
        await client.initialize()
        assert (await client.result("who"))["seen"] == {}


@pytest.mark.parametrize("mode", ["per_principal", "shared"])
async def test_a_process_that_opens_is_asked_nothing_else(supervisor: Supervisor, mode: str) -> None:
    """Who asks for the era meanwhile does no harm to the session."""
    async with running(supervisor, Setup(mode, program=STRICT)) as upstream:
        client = Client(upstream)
        await asyncio.gather(client.initialize(), asked_for_the_era(Client(upstream)), return_exceptions=True)
        assert (await client.result("who"))["seen"] == {}


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_opens_no_session_is_not_started_for_every_client(
    supervisor: Supervisor, tmp_path: Path, mode: str
) -> None:
    """That it refused the modern era before is no start that succeeded: it has one for each era."""
    program = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n" + NEVER_OPEN
    async with running(supervisor, Setup(mode, program=program)) as upstream:
        for _ in range(5):
            await asyncio.gather(asked_for_the_era(Client(upstream)), return_exceptions=True)
            with pytest.raises(UpstreamUnreachable):
                await Client(upstream).initialize()
        # One for each era; a slow machine may live through the first pause, of a second.
        assert len((tmp_path / "starts").read_text()) in (2, 3)


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_never_opens_its_session_is_stopped(supervisor: Supervisor, mode: str) -> None:
    """As one is that was started for it, although it refused the modern era in time."""
    setup = Setup(mode, program=LEGACY, start_timeout=1.0, arguments=("--mute",))
    async with running(supervisor, setup) as upstream:
        assert "error" in await asked_for_the_era(Client(upstream))
        with pytest.raises(UpstreamSilent, match="within 1 s of its start"):
            await Client(upstream).initialize()
