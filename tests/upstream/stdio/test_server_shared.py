"""One process for many clients: of one principal, of all, or of those that speak MCP 2026-07-28."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from adapter.errors import LimitReached, UpstreamUnanswered
from adapter.upstream.stdio.shared import LONGEST_URI, MOST_OF_A_SESSION
from adapter.upstream.stdio.supervisor import Supervisor
from tests.upstream.stdio.children import vanished
from tests.upstream.stdio.scripted import (
    MODERN_META,
    PATIENCE,
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

PRINCIPAL = Setup("per_principal")
SHARED = Setup("shared")
OWN = Setup()


async def test_sessions_of_a_principal_share_a_process(supervisor: Supervisor) -> None:
    """Another principal has another one; each session has its own id."""
    async with running(supervisor, PRINCIPAL) as upstream:
        clients = [Client(upstream, name) for name in ("ada", "ada", "ben")]
        await asyncio.gather(*(client.initialize() for client in clients))
        pids = [(await client.result("who"))["pid"] for client in clients]
        assert pids[0] == pids[1] != pids[2]
        assert len({client.session for client in clients}) == 3


async def test_answers_find_their_session(supervisor: Supervisor) -> None:
    """Both sessions use the same ids and tokens at the same time, and get them back as they spelled them."""
    async with running(supervisor, SHARED) as upstream:
        one, other = await opened(upstream, "ada"), await opened(upstream, "ben")
        replies = [await client.call("progress", 1.0, token="t", n=1) for client in (one, other)]
        for reply in replies:
            body = await read(reply)
            told, answer = events(body)
            assert told["params"]["progressToken"] == "t" and b'"id":1.0' in body.replace(b'"id": ', b'"id":')
            assert answer["result"] == {"done": True}


async def test_a_shared_process_hears_of_no_client_s_capabilities(supervisor: Supervisor) -> None:
    """It would ask one principal on behalf of another."""
    async with running(supervisor, SHARED) as upstream:
        replies = [await Client(upstream, name).initialize(sampling={}) for name in ("ada", "ben")]
        results = [orjson.loads(await read(reply))["result"] for reply in replies]
        assert [result["capabilities"] for result in results] == [{}, {}]


async def test_a_shared_process_asks_nobody(supervisor: Supervisor) -> None:
    """Its requests are refused, for they cannot be told apart, and no client sees them."""
    async with running(supervisor, SHARED) as upstream:
        client = await opened(upstream)
        listening = await client.listen()
        answered = (await client.result("ask", method="sampling/createMessage"))["answered"]
        assert answered["code"] == -32601
        await client.result("log", n=1)
        assert repr(listening) == "<EventStream: open, 0 unread>"
        assert (await client.result("ask", method="ping"))["answered"] == {}


async def test_a_principal_is_asked_in_all_its_sessions(supervisor: Supervisor) -> None:
    """The first answer counts; the other session hears that the request was withdrawn."""
    async with running(supervisor, PRINCIPAL) as upstream:
        one, other = await opened(upstream), await opened(upstream)
        streams = [await client.listen() for client in (one, other)]
        busy = [asyncio.create_task(client.call("hold", 1)) for client in (one, other)]
        for stream in streams:
            await next_events(stream, 2)
        waits = asyncio.create_task(one.result("ask", 2, method="roots/list"))
        for stream in streams:
            assert (await next_events(stream))[0]["method"] == "roots/list"
        for client in (other, one):
            await client.send(b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}')
        assert await waits == {"answered": {"roots": []}}
        (withdrawn,) = await next_events(streams[0])
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", "q")
        await one.result("release", 3)
        await asyncio.gather(*busy)


async def test_the_session_at_work_is_asked_alone(supervisor: Supervisor) -> None:
    """A request of the process while one session waits for an answer is that session's."""
    async with running(supervisor, PRINCIPAL) as upstream:
        one, other = await opened(upstream), await opened(upstream)
        streams = [await client.listen() for client in (one, other)]
        waits = asyncio.create_task(one.result("ask", 2, method="roots/list"))
        assert (await next_events(streams[0]))[0]["method"] == "roots/list"
        await other.send(b'{"jsonrpc":"2.0","id":"q","result":{"roots":["of another"]}}')
        await one.send(b'{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}')
        assert await waits == {"answered": {"roots": []}}
        assert repr(streams[1]) == "<EventStream: open, 0 unread>"


async def test_a_cancellation_names_the_right_request(supervisor: Supervisor) -> None:
    """Both sessions have a request of the same id; only the one that is cancelled ends."""
    async with running(supervisor, PRINCIPAL) as upstream:
        one, other = await opened(upstream), await opened(upstream)
        streams = [await client.listen() for client in (one, other)]
        held = [asyncio.create_task(client.call("hold", 1)) for client in (one, other)]
        for stream in streams:
            await next_events(stream, 2)
        await one.send(message("notifications/cancelled", params={"requestId": 1}))
        assert (await held[0]).status == 202
        await other.result("release", 2)
        assert orjson.loads(await read(await held[1]))["result"] == {"released": True}


async def test_an_update_goes_to_those_who_subscribed(supervisor: Supervisor) -> None:
    """A resource that nobody subscribed to is told to no stranger."""
    async with running(supervisor, SHARED) as upstream:
        one, other = await opened(upstream, "ada"), await opened(upstream, "ben")
        streams = [await client.listen() for client in (one, other)]
        await one.send(message("resources/subscribe", 1, {"uri": "file:///a"}))
        await other.result("update", uri="file:///a")
        await other.result("update", uri="file:///b")
        (told,) = await next_events(streams[0])
        assert told["params"] == {"uri": "file:///a"}
        assert [repr(stream) for stream in streams] == ["<EventStream: open, 0 unread>"] * 2


async def test_strangers_hear_of_lists_only(supervisor: Supervisor) -> None:
    """Any other notification may name a task or a page of another client; clients of one principal hear all."""
    told, listed = "notifications/tasks/status", "notifications/tools/list_changed"
    for setup, expected in ((SHARED, [listed]), (PRINCIPAL, [told, listed])):
        async with running(supervisor, setup) as upstream:
            client = await opened(upstream)
            listening = await client.listen()
            for method in (told, listed):
                await client.result("tell", method=method)
            heard = await next_events(listening, len(expected))
            assert [each["method"] for each in heard] == expected


async def test_a_session_takes_no_subscription_of_another(supervisor: Supervisor) -> None:
    """It is refused one too many, also one with an endless URI; those of others stay."""
    async with running(supervisor, SHARED) as upstream:
        one, other = await opened(upstream, "ada"), await opened(upstream, "eve")
        listening = await one.listen()
        await one.send(message("resources/subscribe", 1, {"uri": "file:///a"}))
        for number in range(MOST_OF_A_SESSION):
            await other.send(message("resources/subscribe", number, {"uri": f"x:{number}"}))
        for uri in ("x:more", "x:" + "y" * LONGEST_URI):
            with pytest.raises(LimitReached, match="subscribed"):
                await other.send(message("resources/subscribe", 1, {"uri": uri}))
        await other.send(message("resources/unsubscribe", 1, {"uri": "x:1"}))
        await other.send(message("resources/subscribe", 1, {"uri": "x:more"}))
        await other.result("update", uri="file:///a")
        assert (await next_events(listening))[0]["params"] == {"uri": "file:///a"}


async def test_no_modern_stranger_hears_a_log_message(supervisor: Supervisor) -> None:
    """It names no request, and may be about another client's call that was answered before."""
    async with running(supervisor, SHARED) as upstream:
        reply = await Client(upstream).send(call("log", modern=True, n=1), modern="tools/call")
        assert reply.whole is not None and orjson.loads(reply.whole)["result"] == {}


async def test_a_crash_ends_all_sessions_of_the_process(supervisor: Supervisor) -> None:
    """Each call is answered; the next initialize starts a process anew."""
    async with running(supervisor, PRINCIPAL) as upstream:
        one, other = await opened(upstream), await opened(upstream)
        with pytest.raises(UpstreamUnanswered):
            await one.call("exit", code=1)
        assert (await other.call("who")).status == 404
        await other.initialize()
        assert (await other.result("who"))["seen"] == {}


async def test_a_session_that_ends_leaves_the_process_to_others(supervisor: Supervisor) -> None:
    """It is stopped when it was idle for long enough."""
    limits = {"idle_ttl_seconds": 0.3}
    async with running(supervisor, Setup("per_principal", limits)) as upstream:
        one, other = await opened(upstream), await opened(upstream)
        pid = (await one.result("who"))["pid"]
        await one.delete()
        assert (await other.result("who"))["pid"] == pid
        await other.delete()
        assert await vanished([pid], PATIENCE)


# --- MCP 2026-07-28 ---------------------------------------------------------------------------------------------


async def test_modern_clients_of_a_principal_share_a_process(supervisor: Supervisor) -> None:
    """Requests of one id at one time are answered under it, and sessions have processes of their own."""
    async with running(supervisor, OWN) as upstream:
        ada, ben = Client(upstream, "ada"), Client(upstream, "ben")
        waits = [ada.send(call("who", 1, modern=True, n=n), modern="tools/call") for n in range(5)]
        replies = [await read(reply) for reply in await asyncio.gather(*waits)]
        answers = [orjson.loads(reply) for reply in replies]
        assert [(each["id"], each["result"]["seen"]) for each in answers] == [(1, {"n": n}) for n in range(5)]
        other = orjson.loads(await read(await ben.send(call("who", 1, modern=True), modern="tools/call")))
        pids = {each["result"]["pid"] for each in answers}
        assert len(pids) == 1 and other["result"]["pid"] not in pids


async def test_a_modern_client_that_leaves_cancels_its_request(supervisor: Supervisor) -> None:
    """The end of the stream is the cancellation, and the process is told of it under the id that it knows."""
    async with running(supervisor, OWN) as upstream:
        client = Client(upstream)
        first = await client.send(call("hold", "a", modern=True), modern="tools/call")
        await next_events(first)
        first.abort()
        second = await client.send(call("hold", "b", modern=True), modern="tools/call")
        told = [each["params"]["data"] for each in await next_events(second, 2)]
        assert told == ["cancelled 1 known", "holding"]


async def test_a_modern_error_has_the_status_of_its_era(supervisor: Supervisor) -> None:
    """A request that was refused as such is no success in HTTP."""
    async with running(supervisor, OWN) as upstream:
        reply = await Client(upstream).send(call("nothing", 1, modern=True), modern="tools/call")
        assert (reply.status, orjson.loads(await read(reply))["error"]["code"]) == (400, -32602)


async def test_a_subscription_hears_under_its_own_id(supervisor: Supervisor) -> None:
    """The process tells subscriptions apart by ids that the adapter chose; clients read the ids that they chose."""
    async with running(supervisor, OWN) as upstream:
        client = Client(upstream)
        params = {"_meta": MODERN_META, "notifications": {}}
        streams = [
            await client.send(message("subscriptions/listen", "mine", params), modern="subscriptions/listen")
            for _ in range(2)
        ]
        for stream in streams:
            (told,) = await next_events(stream)
            assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "mine"}


async def test_a_log_message_is_of_the_call_beside_a_subscription(supervisor: Supervisor) -> None:
    """A subscription hears of changes only, so the message can be of the one call that is under way."""
    async with running(supervisor, OWN) as upstream:
        client = Client(upstream)
        params = {"_meta": MODERN_META, "notifications": {}}
        listening = await client.send(
            message("subscriptions/listen", "mine", params), modern="subscriptions/listen"
        )
        await next_events(listening)
        reply = await client.send(call("log", modern=True, n=1), modern="tools/call")
        assert (await next_events(reply))[0]["params"] == {"data": 0}


async def test_a_modern_request_opens_no_session(supervisor: Supervisor) -> None:
    """The process of modern clients never reads initialize, which it could take for the handshake of a legacy one."""
    async with running(supervisor, OWN) as upstream:
        body = message("initialize", 1, {"_meta": MODERN_META})
        reply = await Client(upstream).send(body, modern="initialize")
        assert (reply.status, orjson.loads(await read(reply))["error"]["code"]) == (404, -32601)
        assert upstream.server.use.running == 0


async def test_fields_that_mirror_arguments_are_checked(supervisor: Supervisor) -> None:
    """A process sees no header fields, so the adapter compares them for the tools that it has listed."""
    async with running(supervisor, OWN) as upstream:
        client = Client(upstream)
        listed = await client.send(message("tools/list", 1, {"_meta": MODERN_META}), modern="tools/list")
        assert listed.status == 200
        body = call("who", 2, modern=True, city="Rome")
        refused = await client.send(body, modern="tools/call", City="Oslo")
        assert (refused.status, orjson.loads(await read(refused))["error"]["code"]) == (400, -32020)
        accepted = await client.send(body, modern="tools/call", City="Rome")
        assert orjson.loads(await read(accepted))["result"]["seen"] == {"city": "Rome"}
