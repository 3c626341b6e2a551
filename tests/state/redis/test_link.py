"""One connection for all commands, against a server that does as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import uvloop
from redis.exceptions import ResponseError

from adapter.errors import StoreUnavailable
from adapter.state.redis.address import RedisAddress, RedisServer
from adapter.state.redis.dialer import Dialer, LinkConnection, LinkLost
from adapter.state.redis.link import RedisLink, RedisSubscription, WordListener
from tests.waiting import until


@dataclass
class ScriptedRedis:
    """A server on a port: it answers each command by ``answers``, in order, without an answer by +OK."""

    answers: list[bytes] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)
    reads: int = 0
    connections: int = 0
    port: int = 0
    refuses: bool = False
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        if self.refuses:
            writer.close()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                setup = b"SETINFO" in data
                self.reads += not setup
                for _ in range(data.count(b"*")):
                    answer = b"+OK\r\n" if setup or not self.answers else self.answers.pop(0)
                    writer.write(answer)
                if not setup:
                    self.commands += [each for each in data.split(b"*") if each]
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedRedis]:
    script = ScriptedRedis()
    listener = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = listener.sockets[0].getsockname()[1]
    yield script
    listener.close()
    for writer in script.writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in script.writers), return_exceptions=True)


@pytest.fixture
async def link(server: ScriptedRedis) -> AsyncIterator[RedisLink]:
    dialer = Dialer(RedisAddress((RedisServer("127.0.0.1", server.port),)), 1.0)
    link = RedisLink(dialer.dial, 0.3, failed=lambda: None)
    link.open()
    yield link
    await link.close()


async def test_commands_of_one_turn_go_together(server: ScriptedRedis, link: RedisLink) -> None:
    """A hundred commands that are asked for at once are one write, and each gets its own answer."""
    await link.ready()
    server.answers = [b":%d\r\n" % n for n in range(100)]
    assert await asyncio.gather(*(link.ask(b"GET", b"%d" % n) for n in range(100))) == [*range(100)]
    assert server.reads == 1


async def test_an_answer_in_pieces(server: ScriptedRedis, link: RedisLink) -> None:
    """An answer may come a byte at a time."""
    await link.ready()
    server.answers = [b""]
    asking = asyncio.ensure_future(link.ask(b"GET", b"a"))
    await until(lambda: server.commands)
    for byte in b"$3\r\nabc\r\n":
        server.writers[-1].write(bytes([byte]))
        await asyncio.sleep(0)
    assert await asking == b"abc"


async def test_a_refusal_is_of_one_command(server: ScriptedRedis, link: RedisLink) -> None:
    """An error of the server is raised for the command that it refuses; those beside it have their answers."""
    await link.ready()
    server.answers = [b"+a\r\n", b"-ERR no\r\n", b"+b\r\n"]
    answers = await asyncio.gather(*(link.ask(b"X") for _ in range(3)), return_exceptions=True)
    assert (answers[0], answers[2]) == (b"a", b"b")
    assert isinstance(answers[1], ResponseError)


async def test_a_caller_that_leaves_moves_no_answer(server: ScriptedRedis, link: RedisLink) -> None:
    """The answer of a caller that was cancelled goes to nobody else."""
    await link.ready()
    server.answers = [b":1\r\n", b":2\r\n"]
    leaving = asyncio.ensure_future(link.ask(b"GET", b"a"))
    staying = asyncio.ensure_future(link.ask(b"GET", b"b"))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 2


async def test_an_answer_to_nothing_ends_the_connection(server: ScriptedRedis, link: RedisLink) -> None:
    """A server that answers more than it was asked is not believed any more."""
    await link.ask(b"PING")
    server.writers[-1].write(b"+stray\r\n")
    await until(lambda: server.connections != 1)
    assert await link.ask(b"PING") == b"OK"


async def test_a_command_is_not_sent_twice(server: ScriptedRedis, link: RedisLink) -> None:
    """What was under way when the connection broke fails; the next command goes over the next connection."""
    await link.ask(b"PING")
    server.answers = [b"", b""]
    asking = [asyncio.ensure_future(link.ask(b"INCR", b"a")) for _ in range(2)]
    await until(lambda: len(server.commands) >= 3)
    server.writers[-1].close()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LinkLost, LinkLost]
    assert await link.ask(b"PING") == b"OK"
    assert sum(b"INCR" in command for command in server.commands) == 2


async def test_a_silent_server_is_left(server: ScriptedRedis, link: RedisLink) -> None:
    """An answer that does not come in time fails every command under way, and the connection is opened again."""
    await link.ask(b"PING")
    server.answers = [b"", b""]
    outcomes = await asyncio.gather(*(link.ask(b"GET", b"a") for _ in range(2)), return_exceptions=True)
    assert ["does not answer" in str(outcome) for outcome in outcomes] == [True, True]
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(StoreUnavailable):
                assert await link.ask(b"PING") == b"OK"
                break
            await asyncio.sleep(0.001)


async def test_an_answer_that_waits_in_the_socket_is_in_time(server: ScriptedRedis, link: RedisLink) -> None:
    """A loop that stood still for longer than an answer may take blames nobody: the answer is there to be read."""
    await link.ask(b"PING")
    asking = asyncio.ensure_future(link.ask(b"GET", b"a"))
    await until(lambda: len(server.commands) >= 2)
    time.sleep(0.5)
    assert await asking == b"OK"
    assert server.connections == 1


@pytest.mark.timed
async def test_a_server_that_hangs_up_is_not_flooded(server: ScriptedRedis, link: RedisLink) -> None:
    """A server that takes connections and closes them at once is tried less and less often."""
    server.refuses = True
    server.writers[-1].close() if server.writers else None
    with contextlib.suppress(StoreUnavailable):
        await link.ask(b"PING")
    await asyncio.sleep(0.5)
    assert server.connections < 12
    server.refuses = False
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(StoreUnavailable):
                assert await link.ask(b"PING") == b"OK"
                break
            await asyncio.sleep(0.01)


async def test_a_server_that_is_loading_is_away(server: ScriptedRedis, link: RedisLink) -> None:
    """The sentence says so, and nobody waits."""
    await link.ask(b"PING")
    server.answers = [b"-LOADING Redis is loading the dataset in memory\r\n"]
    with pytest.raises(LinkLost, match="Redis is loading its data"):
        await link.ask(b"GET", b"a")


async def test_a_fault_of_ours_keeps_nobody_waiting(server: ScriptedRedis) -> None:
    """Whoever waits for a connection is refused when opening it fails for a reason that nobody foresaw; the link and
    the subscription try again."""
    dialer = Dialer(RedisAddress((RedisServer("127.0.0.1", server.port),)), 1.0)
    dialled, lost = 0, asyncio.Event()

    async def dial() -> LinkConnection:
        nonlocal dialled
        dialled += 1
        if dialled < 3:
            raise LookupError("nobody foresaw this")
        return await dialer.dial()

    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    listener = WordListener(lambda _: None, lambda: None, lost.set, lambda _: None)
    kept = RedisSubscription(dial, [b"changes"], 1.0, listener), RedisLink(dial, 0.3, failed=lambda: None)
    for each in kept:
        each.open()
    try:
        async with asyncio.timeout(20):
            with pytest.raises(StoreUnavailable):
                await kept[1].ask(b"PING")
            await lost.wait()
            await until(lambda: any(b"SSUBSCRIBE" in command for command in server.commands))
            while True:
                with contextlib.suppress(StoreUnavailable):
                    assert await kept[1].ask(b"PING") == b"OK"
                    break
                await asyncio.sleep(0.001)
    finally:
        for each in kept:
            await each.close()
    assert len(told) == 2


def test_a_connection_that_is_lost_takes_commands_until_that_is_known() -> None:
    """On the loop of the adapter too, a command that meets the end of the connection fails as one that was lost."""

    async def scenario() -> tuple[list[object], list[dict[str, object]]]:
        script, told = ScriptedRedis(), list[dict[str, object]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        listener = await asyncio.start_server(script.serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        link = RedisLink(
            Dialer(RedisAddress((RedisServer("127.0.0.1", port),)), 1.0).dial, 0.3, failed=lambda: None
        )
        link.open()
        outcomes: list[object] = []
        for _ in range(5):
            assert await link.ask(b"PING") == b"OK"
            peer = script.writers[-1].transport
            peer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            peer.abort()
            asking = []
            for _ in range(20):
                asking.append(asyncio.ensure_future(link.ask(b"GET", b"a")))
                await asyncio.sleep(0)
            outcomes += await asyncio.gather(*asking, return_exceptions=True)
        await link.close()
        listener.close()
        return outcomes, told

    outcomes, told = uvloop.run(scenario())
    assert all(outcome == b"OK" or isinstance(outcome, LinkLost) for outcome in outcomes)
    assert any(isinstance(outcome, LinkLost) for outcome in outcomes)
    assert told == []
