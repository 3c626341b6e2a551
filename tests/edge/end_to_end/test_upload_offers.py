"""Uploads that are offered in one session, come by a link, and are used in another one: over sockets."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from adapter.errors import StoreUnavailable
from adapter.relay.files.upload_tools import MOST_WAITING
from adapter.relay.stages import Stage
from adapter.state.redis.layout import Layout
from adapter.state.redis.store import RedisStore
from adapter.state.sqlite import MemoryStore, SqliteStore
from tests.edge.conftest import Adapter, StartAdapter, StartUpstream
from tests.edge.end_to_end.test_hosts_without_sessions import stateless
from tests.edge.file_tools import FORM, READS, form, rpc, text_of
from tests.edge.raw import Exchange, RawClient, initialize_result, read_body, result
from tests.state.redis import servers
from tests.state.shared import SharedMemory
from tests.waiting import until

READER = {"adapters": [READS]}
TOKENS = {"auth": {"enabled": True, "tokens": [{"name": name, "token": name} for name in ("ann", "bob")]}}


async def reading(exchange: Exchange) -> None:
    """An upstream whose one tool says what is in the file that it is given."""
    message: Any = exchange.message
    if message["method"] == "tools/call":
        content = Path(message["params"]["arguments"]["path"]).read_text()
        await exchange.json(result(message["id"], content))
    elif message["method"] == "notifications/cancelled":
        await exchange.answer(202, b"")
    else:
        await exchange.json(initialize_result(message["id"]))


class Host:
    """A host that opens a session for each call, and closes it again, as chats do that keep none."""

    def __init__(self, fronts: list[Adapter], token: str | None = None) -> None:
        self.fronts = fronts
        self.fields = {} if token is None else {"authorization": f"Bearer {token}"}

    @asynccontextmanager
    async def session(self) -> AsyncIterator[RawClient]:
        front = self.fronts[0]
        self.fronts = [*self.fronts[1:], front]
        async with front.client() as client:
            await client.initialize(**self.fields)
            yield client
            head, _ = await client.request("DELETE", b"", **self.fields)
            assert head.status == 200

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        body = orjson.dumps({**message, "params": {"name": tool, "arguments": arguments}})
        async with self.session() as client:
            _, answer = await client.request("POST", body, **self.fields)
        found: dict[str, Any] = orjson.loads(answer)["result"]
        return found

    async def offer(self) -> dict[str, Any]:
        offer: dict[str, Any] = (await self.call("raw_get_upload_url"))["structuredContent"]
        return offer

    async def status(self, upload_id: str, wait: float = 0) -> dict[str, Any]:
        answer = await self.call("raw_upload_status", upload_id=upload_id, wait_seconds=wait)
        assert orjson.loads(text_of(answer)) == answer["structuredContent"]
        found: dict[str, Any] = answer["structuredContent"]
        return found

    async def upload(self, link: str, content: bytes = b"hello") -> tuple[int, dict[str, Any]]:
        split = urlsplit(link)
        async with self.fronts[-1].client() as client:
            path = f"{split.path}?{split.query}"
            head, body = await client.request("POST", form(content), path, content_type=FORM)
        return head.status, orjson.loads(body)

    async def read(self, handle: str) -> str:
        return text_of(await self.call("read", path=handle))


REFUSED = "must be the handle of an uploaded file"


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Gives each of two replicas its store over the same rows."""
    match request.param:
        case "sqlite":
            return partial(SqliteStore, tmp_path / "state.sqlite3", shared=True)
        case "redis":
            layout = Layout(f"offers-{secrets.token_hex(8)}", 4)
            return partial(RedisStore, servers.dialer([request.getfixturevalue("redis_server")]), layout)
    return SharedMemory().replica


@pytest.mark.parametrize("link", ["upload_url", "open_in_browser"])
async def test_each_call_may_come_in_another_session(
    upstream: StartUpstream, adapter: StartAdapter, link: str
) -> None:
    """Links from one, the state from the next, the tool in a third, each ended before the next begins."""
    async with upstream(reading) as up, adapter(up, server=READER) as front:
        host = Host([front])
        offer = await host.offer()
        assert (await host.status(offer["upload_id"]))["state"] == "waiting"
        assert (await host.upload(offer[link]))[0] == 200
        status = await host.status(offer["upload_id"])
        assert status["state"] == "done" and status["uploads"][0]["filename"] == "note.txt"
        assert await host.read(status["upload_handles"][0]) == "hello"


@pytest.mark.parametrize("stores", ["shared memory", "sqlite", "redis"], indirect=True)
async def test_each_call_may_come_to_another_replica(
    upstream: StartUpstream, adapter: StartAdapter, stores: Any
) -> None:
    """One that waits at a replica hears of the upload at the other, and the handle is good at both."""
    async with upstream(reading) as up, AsyncExitStack() as stack:
        fronts = [
            await stack.enter_async_context(
                adapter(up, server=READER, store=stores(), storage={"lock_mode": "none"})
            )
            for _ in range(2)
        ]
        host, person = Host(fronts), Host(fronts[::-1])
        offer = await host.offer()
        waiting = asyncio.ensure_future(host.status(offer["upload_id"], 50))
        status, answer = await person.upload(offer["open_in_browser"])
        assert status == 200
        async with asyncio.timeout(10):
            told = await waiting
        assert told["state"] == "done" and told["upload_handles"] == answer["upload_handles"]
        for _ in fronts:
            assert await host.read(answer["upload_handle"]) == "hello"


async def test_one_link_ends_the_other(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """One batch, whichever is used first; a refused batch ends neither."""
    async with upstream(reading) as up, adapter(up, server=READER, uploads={"max_file_bytes": 10}) as front:
        host = Host([front])
        for first, second in (("upload_url", "open_in_browser"), ("open_in_browser", "upload_url")):
            offer = await host.offer()
            assert (await host.upload(offer[first], bytes(11)))[0] == 413
            assert (await host.status(offer["upload_id"]))["state"] == "waiting"
            assert (await host.upload(offer[first]))[0] == 200
            assert (await host.upload(offer[second]))[0] == 401


# --- other people's -------------------------------------------------------------------------------------------


async def test_other_people_get_nothing(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """With the upload's id and the handles in hand, somebody else is told what one hears who made them up."""
    async with upstream(reading) as up, adapter(up, server=READER, core=TOKENS) as front:
        ann, bob = Host([front], "ann"), Host([front], "bob")
        offer = await ann.offer()
        _, answer = await ann.upload(offer["upload_url"])
        invented = await bob.status("0" * 32)
        foreign = await bob.status(offer["upload_id"])
        assert foreign | {"upload_id": ""} == invented | {"upload_id": ""}
        handle = answer["upload_handle"]
        made_up = f"{handle[: handle.rindex('/')]}/{'0' * 32}"
        assert await bob.read(handle) == await bob.read(made_up) == await ann.read(made_up)
        assert REFUSED in await bob.read(handle)
        # It is hers all the while, in every session.
        assert await ann.read(handle) == "hello"
        assert (await ann.status(offer["upload_id"]))["upload_handles"] == [handle]


async def test_without_tokens_only_the_upload_id_opens_a_batch(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Whoever saw the link, or the handle of another session, has nothing; the id is in no link."""
    async with upstream(reading) as up, adapter(up, server=READER) as front:
        host = Host([front])
        async with front.client() as owner:
            await owner.initialize()
            call = {"name": "raw_get_upload_url", "arguments": {}}
            offer = (await rpc(owner, "tools/call", call))["structuredContent"]
            _, answer = await host.upload(offer["upload_url"])
            file_id = answer["upload"]["upload_id"]
            nonce = dict(part.split("=") for part in urlsplit(offer["upload_url"]).query.split("&"))["nonce"]
            assert (await host.status(nonce))["state"] == "expired"
            for owned_by in (answer["session_id"], offer["session_id"], offer["upload_id"]):
                assert REFUSED in await host.read(f"upload://sessions/{owned_by}/{file_id}")
            read = await rpc(
                owner, "tools/call", {"name": "read", "arguments": {"path": answer["upload_handle"]}}
            )
            assert text_of(read) == "hello"
        (handle,) = (await host.status(offer["upload_id"]))["upload_handles"]
        assert await host.read(handle) == "hello"


async def test_a_batch_opens_no_other_file(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """A handle names one batch and one file of it: those of another batch of the same session stay closed."""
    async with upstream(reading) as up, adapter(up, server=READER) as front, front.client() as owner:
        await owner.initialize()
        host, call = Host([front]), {"name": "raw_get_upload_url", "arguments": {}}
        offers = [(await rpc(owner, "tools/call", call))["structuredContent"] for _ in range(2)]
        answers = [(await host.upload(each["open_in_browser"]))[1] for each in offers]
        one, other = (answer["upload_handle"].rsplit("/", 1) for answer in answers)
        assert REFUSED in await host.read(f"{one[0]}/{other[1]}")
        assert await host.read("/".join(one)) == "hello"


class Untouchable(MemoryStore):
    """A store that moves no due times when told."""

    failing = False

    async def touch(self, table: str, dues: dict[str, float]) -> None:
        if self.failing:
            raise StoreUnavailable
        await super().touch(table, dues)


async def test_what_is_held_is_answered_for(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """The link is used up by then, so a sender who was told of a failure could not send the files again."""
    store = Untouchable()
    async with upstream(reading) as up, adapter(up, server=READER, store=store) as front:
        host = Host([front])
        offer = await host.offer()
        store.failing = True
        status, answer = await host.upload(offer["open_in_browser"])
        store.failing = False
        assert status == 200
        assert (await host.status(offer["upload_id"]))["upload_handles"] == answer["upload_handles"]


async def test_a_batch_is_for_its_server(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """The same principal at another server is told nothing of it."""
    async with upstream(reading) as up:
        second = {"id": "two", "mount_path": "/two", "upstream": {"url": up.url}, **READER}
        first = {"id": "raw", "mount_path": "/mcp", "upstream": {"url": up.url}, **READER}
        async with adapter(up, servers=[first, second]) as front, front.client() as client:
            host = Host([front])
            offer = await host.offer()
            _, answer = await host.upload(offer["open_in_browser"])
            await client.initialize(path="/two")
            for name, arguments in (
                ("two_upload_status", {"upload_id": offer["upload_id"]}),
                ("read", {"path": answer["upload_handle"]}),
            ):
                params = {"name": name, "arguments": arguments}
                body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
                _, told = await client.request("POST", body, "/two")
                assert "hello" not in told.decode() and (b"expired" in told)


# --- waiting --------------------------------------------------------------------------------------------------


def waiting_call(upload_id: str, wait: float, **meta: Any) -> bytes:
    params: dict[str, Any] = {
        "name": "raw_upload_status",
        "arguments": {"upload_id": upload_id, "wait_seconds": wait},
    }
    if meta:
        params["_meta"] = meta
    return orjson.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})


async def test_progress_is_told_until_the_files_are_there(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """On the stream of the call, whose last event is its answer."""
    async with upstream(reading) as up, adapter(up, server=READER) as front, front.client() as client:
        await client.initialize()
        host = Host([front])
        offer = await host.offer()
        await client.send("POST", waiting_call(offer["upload_id"], 50, progressToken="t"))
        assert (await client.head())["content-type"] == "text/event-stream"
        first = await client.read_until(1)
        assert b"notifications/progress" in first and b'"progressToken":"t"' in first
        assert (await host.upload(offer["open_in_browser"]))[0] == 200
        rest = first
        while b'"id":7' not in rest:
            rest = await client.read_until(len(rest) + 1, rest)
        assert b'"done"' in rest.rpartition(b"data: ")[2]


async def test_a_call_that_is_given_up_waits_no_longer(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """By a notification, or by hanging up: nobody waits for what nobody wants to know."""
    async with upstream(reading) as up, adapter(up, server=READER) as front, front.client() as client:
        await client.initialize()
        offer = await Host([front]).offer()
        tool = status_tool(front)
        await client.send("POST", waiting_call(offer["upload_id"], 50))
        await waits(tool, 1)
        async with front.client() as other:
            other.session = client.session
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            head, _ = await other.request("POST", orjson.dumps(cancel))
            assert head.status == 202
        assert (await client.head()).status == 202
        async with front.client() as gone:
            gone.session = client.session
            await gone.send("POST", waiting_call(offer["upload_id"], 50))
            await waits(tool, 1)
        await waits(tool, 0)


async def test_who_shares_a_session_ends_no_other_call(
    upstream: StartUpstream, adapter: StartAdapter
) -> None:
    """Clients without sessions count their calls alike, so one that is given up may be somebody else's."""
    async with AsyncExitStack() as stack:
        up = await stack.enter_async_context(upstream(reading, opening=stateless))
        front = await stack.enter_async_context(adapter(up, server=READER))
        ann, bob = [await stack.enter_async_context(front.client()) for _ in range(2)]
        offer = (await rpc(bob, "tools/call", {"name": "raw_get_upload_url"}))["structuredContent"]
        await ann.send("POST", waiting_call(offer["upload_id"], 50))
        await waits(status_tool(front), 1)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await bob.request("POST", orjson.dumps(cancel)))[0].status == 202
        assert (await Host([front]).upload(offer["open_in_browser"]))[0] == 200
        head = await ann.head()
        assert head.status == 200 and b'"done"' in await read_body(ann.reader, head)


@pytest.mark.parametrize("meta", [{}, {"progressToken": "t"}])
async def test_nobody_waits_for_files_while_the_adapter_stops(
    upstream: StartUpstream, adapter: StartAdapter, meta: dict[str, Any]
) -> None:
    """Who waits is told how things are, and the stop takes no longer for it."""
    grace = {"shutdown_grace_seconds": 60}
    async with upstream(reading) as up, AsyncExitStack() as stack:
        front = await stack.enter_async_context(adapter(up, server=READER, core=grace))
        async with front.client() as client:
            await client.initialize()
            offer = await Host([front]).offer()
            await client.send("POST", waiting_call(offer["upload_id"], 50, **meta))
            await waits(status_tool(front), 1)
            async with asyncio.timeout(10):
                await stack.aclose()
            head = await client.head()
            assert head.status == 200 and b'"waiting"' in await read_body(client.reader, head)


def status_tool(front: Adapter) -> Stage:
    entries = front.app.servers["raw"].stages.entries
    return next(each.stage for each in entries if each.name == "raw_upload_status")


async def waits(tool: Stage, calls: int) -> None:
    await until(lambda: f": {calls} calls wait" in repr(tool))


@pytest.mark.parametrize("arguments", [{}, {"upload_id": 1}, {"upload_id": "x", "wait_seconds": 51}, [1]])
async def test_arguments_that_cannot_be_meant_are_named(
    upstream: StartUpstream, adapter: StartAdapter, arguments: Any
) -> None:
    """The refusal is a sentence for the model, with the limits."""
    async with upstream(reading) as up, adapter(up, server=READER) as front, front.client() as client:
        await client.initialize()
        answer = await rpc(client, "tools/call", {"name": "raw_upload_status", "arguments": arguments})
        assert answer["isError"] and "0 to 50" in text_of(answer)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_batch_on_its_way_is_told(
    upstream: StartUpstream, adapter: StartAdapter, replicas: int
) -> None:
    """With what has come of it, wherever it comes; one that breaks off leaves the link as it was."""
    store = SharedMemory().replica
    async with upstream(reading) as up, AsyncExitStack() as stack:
        start = partial(adapter, up, server=READER, storage={"lock_mode": "none"})
        fronts = [await stack.enter_async_context(start(store=store())) for _ in range(replicas)]
        host = Host(fronts[-1:])
        offer = await host.offer()
        split = urlsplit(offer["open_in_browser"])
        async with fronts[0].client() as sender:
            part = form(bytes(300_000))[:200_000]
            path, length = f"{split.path}?{split.query}", str(len(form(bytes(300_000))))
            await sender.send("POST", part, path, content_type=FORM, content_length=length)
            status = await becomes(host, offer, "receiving")
            while status["received_bytes"] < 150_000:  # told again and again
                status = await host.status(offer["upload_id"])
            assert status["state"] == "receiving" and status["received_bytes"] <= 200_000
        await becomes(host, offer, "waiting")
        assert (await host.upload(offer["open_in_browser"]))[0] == 200
        assert (await host.status(offer["upload_id"]))["state"] == "done"


async def becomes(host: Host, offer: dict[str, Any], state: str) -> dict[str, Any]:
    async with asyncio.timeout(15):
        while (status := await host.status(offer["upload_id"]))["state"] != state:
            await asyncio.sleep(0.05)
    return status


async def test_only_so_many_calls_wait(upstream: StartUpstream, adapter: StartAdapter) -> None:
    """One more is told at once how things are, and is not refused."""
    async with upstream(reading) as up, adapter(up, server=READER) as front, AsyncExitStack() as stack:
        host = Host([front])
        offer = await host.offer()
        tool = status_tool(front)
        first = await stack.enter_async_context(front.client())
        await first.initialize()
        for _ in range(MOST_WAITING):
            client = await stack.enter_async_context(front.client())
            client.session = first.session
            await client.send("POST", waiting_call(offer["upload_id"], 50))
        await waits(tool, MOST_WAITING)
        async with asyncio.timeout(10):
            assert (await host.status(offer["upload_id"], 50))["state"] == "waiting"
