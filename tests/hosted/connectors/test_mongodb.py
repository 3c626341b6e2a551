"""The MongoDB connector, on a server of its protocol that another project wrote, and on one that lasts."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import bson
import pytest

from adapter.hosted.connectors import connector_for
from adapter.hosted.connectors.port import ConnectorFailed, QueryFailed
from tests.hosted.databases import Server
from tests.hosted.stating import Asking, opened, opened_at
from tests.hosted.wire import LastingServer, lasting_server
from tests.ports import free_port
from tests.waiting import until

ADA = "507f1f77bcf86cd799439011"


@pytest.fixture(autouse=True)
def lost_sockets() -> Iterator[None]:
    """The driver drops the socket of a connection attempt that is cancelled, as its monitors are when a client is
    closed: the collector closes it, and here its warning is that test's and no later one's."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
async def database(mongodb: Server) -> AsyncIterator[Asking]:
    """A connector to a collection of two."""
    async with opened(mongodb) as asking:
        await asking.mongodb({"delete": "people", "deletes": [{"q": {}, "limit": 0}]})
        people = [
            {"_id": {"$oid": ADA}, "name": "Ada", "born": {"$date": "1815-12-10T00:00:00Z"}},
            {"_id": 2, "name": "Alan", "tags": ["a", None, 1.5, True]},
        ]
        await asking.mongodb({"insert": "people", "documents": people})
        yield asking


async def test_find_gives_its_documents_as_json_knows_them(database: Asking) -> None:
    """Ids, dates and decimals become texts; the filter's extended JSON finds what it means."""
    found = await database.mongodb({"find": "people", "filter": {"_id": {"$oid": ADA}}})
    assert found.rows == [{"_id": ADA, "name": "Ada", "born": "1815-12-10T00:00:00+00:00"}]
    found = await database.mongodb({"find": "people", "filter": {"name": "Alan"}})
    assert found.rows == [{"_id": 2, "name": "Alan", "tags": ["a", None, 1.5, True]}]


async def test_aggregate_gives_its_documents(database: Asking) -> None:
    """The command needs no cursor of its own."""
    counted = await database.mongodb({"aggregate": "people", "pipeline": [{"$count": "n"}]})
    assert counted.rows == [{"n": 2}]


async def test_other_commands_give_their_reply(database: Asking) -> None:
    """A write counts what it changed."""
    update = {"q": {"name": "Ada"}, "u": {"$set": {"name": "Ada L."}}}
    updated = await database.mongodb({"update": "people", "updates": [update]})
    assert updated.affected == 1
    assert (len(updated.rows), updated.rows[0]["n"], updated.rows[0]["ok"]) == (1, 1, 1.0)


async def test_documents_beyond_the_limit_are_cut(database: Asking) -> None:
    """The first batch is as large as is wanted, and nothing is left on the server."""
    documents = [{"_id": n} for n in range(300)]
    await database.mongodb({"delete": "many", "deletes": [{"q": {}, "limit": 0}]})
    await database.mongodb({"insert": "many", "documents": documents})
    all_of_them = await database.mongodb({"find": "many"}, max_rows=300)
    assert (len(all_of_them.rows), all_of_them.truncated) == (300, False)
    for command in (
        {"find": "many"},
        {"aggregate": "many", "pipeline": []},
        {"find": "many", "batchSize": 10},
    ):
        cut = await database.mongodb(command, max_rows=5)
        assert ([row["_id"] for row in cut.rows], cut.truncated) == ([0, 1, 2, 3, 4], True)


async def test_a_refused_command_says_why(database: Asking) -> None:
    """The server's sentence is the failure's, also for a write that was refused in part."""
    with pytest.raises(QueryFailed, match=re.compile("duplicate|unique", re.IGNORECASE)):
        await database.mongodb({"insert": "people", "documents": [{"_id": 2}]})
    assert (await database.mongodb({"ping": 1})).rows[0]["ok"] == 1


async def test_the_database_is_the_urls_unless_the_statement_names_one(database: Asking) -> None:
    """A statement may leave it out."""
    assert len((await database.mongodb({"find": "people"}, database=None)).rows) == 2
    assert (await database.mongodb({"find": "nothing"}, database="other")).rows == []


async def test_many_commands_at_once_get_their_own_answers(mongodb: Server, database: Asking) -> None:
    """A full pool makes calls wait, and a thousand of them change nothing about that."""
    async with opened(mongodb, pool_size=2) as small:
        for _ in range(10):
            answers = await asyncio.gather(*(_echoed(small, n) for n in range(100)))
            assert answers == list(range(100))


async def test_a_restarted_server_is_found_again() -> None:
    """A server that went away fails the calls of that time, and none afterwards."""
    port = free_port()
    state = LastingServer()
    server = await asyncio.start_server(state.serve, "127.0.0.1", port)
    async with opened_at(
        "mongodb", f"mongodb://127.0.0.1:{port}/app", serverSelectionTimeoutMS=300
    ) as database:
        call = asyncio.create_task(database.mongodb({"last": 1}))
        await until(lambda: state.running == 1)
        server.close()
        state.drop()
        with pytest.raises(QueryFailed):
            await call
        # The driver tells what it met last: a refused connection, or one that the server closed.
        with pytest.raises(QueryFailed, match=r"nothing listens at the configured|cannot be reached"):
            await database.mongodb({"ping": 1})
        server = await asyncio.start_server(state.serve, "127.0.0.1", port)
        await until(lambda: _answers(database))
    server.close()
    await until(lambda: not state.connections)


async def test_cancelled_commands_leak_no_connection() -> None:
    """Connections that a cancelled call left in the middle are closed, not kept."""
    async with lasting_server() as (server, url):
        async with opened_at("mongodb", url, pool_size=3) as database:
            for _ in range(20):
                calls = [asyncio.create_task(database.mongodb({"last": 1})) for _ in range(3)]
                await until(lambda: server.running == 3)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
            await database.mongodb({"ping": 1})
            # The driver watches the server with two connections of its own.
            await until(lambda: server.connections <= 3 + 2)
        await until(lambda: not server.connections)


async def test_an_unknown_command_is_a_failure() -> None:
    """The server's sentence is the failure's."""
    async with lasting_server() as (server, url), opened_at("mongodb", url) as database:
        server.replies["nonsense"] = {"ok": 0.0, "code": 59, "errmsg": "no such command: 'nonsense'"}
        with pytest.raises(QueryFailed, match=r"^no such command: 'nonsense'$"):
            await database.mongodb({"nonsense": 1})


async def test_a_partly_refused_write_is_a_failure() -> None:
    """The protocol calls a reply with write errors a success; a caller would not."""
    async with lasting_server() as (server, url), opened_at("mongodb", url) as database:
        server.replies["insert"] = {
            "ok": 1.0,
            "n": 0,
            "writeErrors": [{"index": 0, "errmsg": "E11000 duplicate"}],
        }
        with pytest.raises(QueryFailed, match="E11000 duplicate"):
            await database.mongodb({"insert": "people", "documents": [{}]})
        server.replies["insert"] = {"ok": 1.0, "n": 1, "writeConcernError": {"errmsg": "waiting timed out"}}
        with pytest.raises(QueryFailed, match="waiting timed out"):
            await database.mongodb({"insert": "people", "documents": [{}]})


async def test_types_of_bson_alone_become_texts() -> None:
    """What JSON has no word for is spelled, and loses nothing."""
    async with lasting_server() as (server, url), opened_at("mongodb", url) as database:
        document = {
            "price": bson.Decimal128("12.50"),
            "many": bson.Int64(2**53 + 1),
            "text": b"text",
            "binary": b"\xff\x00",
            "uuid": bson.Binary.from_uuid(UUID(int=1)),
        }
        server.replies["find"] = {
            "ok": 1.0,
            "cursor": {"id": 0, "ns": "app.people", "firstBatch": [document]},
        }
        found = await database.mongodb({"find": "people"})
        assert found.rows == [
            {
                "price": "12.50",
                "many": 2**53 + 1,
                "text": "text",
                "binary": "/wA=",
                "uuid": "00000000-0000-0000-0000-000000000001",
            }
        ]
        assert type(found.rows[0]["many"]) is int


async def test_a_cursor_that_is_left_is_closed_on_the_server() -> None:
    """Nobody reads on, so the server is told."""
    async with lasting_server() as (server, url), opened_at("mongodb", url) as database:
        batch = [{"_id": 1}, {"_id": 2}]
        server.replies["find"] = {"ok": 1.0, "cursor": {"id": 77, "ns": "app.people", "firstBatch": batch}}
        found = await database.mongodb({"find": "people"}, max_rows=1)
        assert (found.rows, found.truncated) == ([{"_id": 1}], True)
        asked = [command for command in server.seen if "find" in command or "killCursors" in command]
        assert asked[0]["batchSize"] == 2
        assert (asked[1]["killCursors"], asked[1]["cursors"]) == ("people", [77])


async def test_a_connector_that_cannot_open_gives_a_safe_reason() -> None:
    """The reason helps whoever configured it, and repeats nothing of the connection string."""
    nowhere = f"mongodb://app:hunter2@127.0.0.1:{free_port()}/db?serverSelectionTimeoutMS=200"
    wrong = {
        nowhere: "nothing listens at the configured address",
        "mongodb://app:hunter2@127.0.0.1:hunter2/db": "the connection string or an option is not valid",
        "mongodb://app:hunt/er2@127.0.0.1/db": "the connection string or an option is not valid",
        "hunter2": "the connection string or an option is not valid",
    }
    for url, why in wrong.items():
        with pytest.raises(ConnectorFailed) as failure:
            await connector_for("mongodb", "main", url).open()
        assert str(failure.value) == f"connector 'main' (mongodb): {why}"


async def _echoed(database: Asking, number: int) -> int:
    found = await database.mongodb(
        {"aggregate": "people", "pipeline": [{"$limit": 1}, {"$addFields": {"n": number}}]}
    )
    n: int = found.rows[0]["n"]
    return n


async def _answers(database: Asking) -> bool:
    try:
        return (await database.mongodb({"ping": 1})).rows == [{"ok": 1.0}]
    except QueryFailed:
        return False
