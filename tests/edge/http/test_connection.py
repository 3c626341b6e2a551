"""Our HTTP server alone, on a raw socket, against what RFC 9112 allows and hostile or slow peers do."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from adapter.edge.http.bodies import ClientGone
from adapter.edge.http.connection import ClientConnection
from adapter.edge.http.limits import Patience
from adapter.edge.http.listener import Listener
from adapter.edge.http.request import Request
from tests.edge.conftest import StartRoad
from tests.edge.raw import read_body, read_head
from tests.waiting import until

HURRIED = Patience(idle=0.1, linger=0.1, half_closed=0.1)
HOST = b"Host: here\r\n"
POST = b"POST /mcp HTTP/1.1\r\n" + HOST
GET = b"GET /mcp HTTP/1.1\r\n" + HOST
ASKED = GET + b"\r\n"
STATUS_LINE = re.compile(rb"(?m)^HTTP/1.1 \d")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Service:
    """A handler that echoes, or does what the path says, and notes what happened to it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.came = asyncio.Event()
        self.ended = asyncio.Event()
        self.go = asyncio.Event()
        self.end: str = ""
        self.written = 0
        self.reset: Callable[[], None]

    async def __call__(self, request: Request) -> None:
        self.requests.append(request)
        self.came.set()
        try:
            await self._serve(request)
            self.end = "done"
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise
        except ClientGone:
            self.end = "gone"
            raise
        finally:
            self.ended.set()

    async def _serve(self, request: Request) -> None:
        reply = request.reply
        match request.path:
            case "/wait":
                await self.go.wait()
                reply.send(200, [], b"waited")
            case "/stream":
                reply.begin(200, [], None)
                for piece in (b"one", b"", b"two"):
                    await reply.write(piece)
                reply.end()
            case "/flood":
                reply.begin(200, [], None)
                while True:
                    await reply.write(bytes(65536))
                    self.written += 65536
            case "/short":
                reply.begin(200, [], 10)
                await reply.write(b"few")
                reply.end()
            case "/refuse":
                reply.send(413, [], b"too large")
            case "/split":
                reply.send(200, [("X-A", "b\r\nX-C: d")], b"")
            case "/reset":
                reply.send(413, [], b"too large")
                self.reset()
            case "/raise":
                raise RuntimeError("before the head")
            case "/break":
                reply.begin(200, [], None)
                await reply.write(b"one")
                raise RuntimeError("after the head")
            case "/nothing":
                pass
            case path if path.startswith("/status/"):
                reply.send(int(path[8:]), [], b"body")
            case _:
                body = b""
                while piece := await request.body.piece(30):
                    body += piece
                reply.send(200, [("X-Path", request.path)], body)


Serve = Callable[..., AbstractAsyncContextManager["Front"]]


class Front:
    """The service while it listens."""

    def __init__(self, service: Service, listener: Listener) -> None:
        self.service = service
        self.listener = listener
        self.complaints: list[str] = []

    @property
    def connection(self) -> ClientConnection:
        """The only one that is open."""
        [connection] = self.listener._connections
        assert isinstance(connection, ClientConnection)
        return connection

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection(*self.listener.address)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def talk(self, data: bytes) -> bytes:
        """Everything the server says to ``data`` until it closes."""
        async with self.connect() as (reader, writer), asyncio.timeout(20):
            writer.write(data)
            return await heard(reader)


async def heard(reader: asyncio.StreamReader) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65536):
            got += piece
    return got


@pytest.fixture
def serve() -> Serve:
    """``async with serve(patience) as front``. What the loop is told of unhandled is in ``front.complaints``."""

    @contextlib.asynccontextmanager
    async def start(patience: Patience = HURRIED) -> AsyncIterator[Front]:
        service = Service()
        front = Front(service, await Listener.open(service, "127.0.0.1", 0, patience))
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: front.complaints.append(context["message"]))
        before = asyncio.all_tasks()
        try:
            async with asyncio.timeout(20):
                yield front
        finally:
            front.listener.close()
            await front.listener.drop()
        assert asyncio.all_tasks() <= before, "a task was left"

    return start


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# --- reading ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 5\r\n\r\nhello",
        POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: t\r\n\r\n",
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
        POST
        + b"Connection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
    ids=["length", "chunks", "upgrade", "upgrade with chunks"],
)
async def test_a_request_may_be_cut_anywhere(serve: Serve, request_: bytes) -> None:
    """Wherever the network cuts a request, its body and the one behind it arrive whole."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        for cut in range(1, len(request_) + 1):
            writer.write(request_[:cut])
            await asyncio.sleep(0)
            writer.write(request_[cut:])
            head = await read_head(reader)
            assert (head.status, await read_body(reader, head)) == (200, b"hello")
        assert not front.complaints


async def test_a_body_is_left_alone(serve: Serve) -> None:
    """A line of a body that looks like a field is the client's own affair."""
    body = b"a\r\nUpgrade: h2c\r\nupgrade: x\r\n"
    async with serve() as front:
        answer = await front.talk(
            POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
    assert answer.endswith(b"\r\n\r\n" + body)


async def test_trailers_are_no_headers(serve: Serve) -> None:
    """What comes behind the body cannot pose as a header that was checked before it."""
    async with serve() as front:
        answer = await front.talk(
            POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n"
        )
        assert status(answer) == 200
        assert "authorization" not in [name.lower() for name, _ in front.service.requests[0].headers.pairs]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
        (POST + b"Content-Length: 3, 3\r\n\r\nabc", 400),
        (POST + b"Content-Length: +3\r\n\r\nabc", 400),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc", 400),
        (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 600000, 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"a" * 600000, 400),
        (POST + b"A: b\rc\r\n\r\n", 400),
        (POST + b"A: b\0c\r\n\r\n", 400),
        (POST + b"A : b\r\n\r\n", 400),
        (POST + b"A: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (GET + HOST + b"\r\n", 400),
        (b"GET /\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (bytes.fromhex("16030100f8010000f40303") + bytes(range(256)), 400),
        (b"\0\0\0\0", 400),
        (b"hello there\r\n\r\n", 400),
        (GET + b"X: " + b"a" * 40000 + b"\r\n\r\n", 431),
        (GET + b"X: " + b"a" * 600000, 431),
        (GET + b"a:\r\n" * 10000 + b"\r\n", 431),
        (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    ],
    ids=range(29),
)
async def test_what_is_no_request_is_refused(serve: Serve, head: bytes, expected: int) -> None:
    """One answer that says why, and the connection is closed; the handler never gets to the end."""
    async with serve() as front:
        answer = await front.talk(head)
        assert status(answer) == expected
        assert len(STATUS_LINE.findall(answer)) == 1
        assert b"\r\nConnection: close\r\n" in answer
        assert front.service.end in ("", "cancelled")
        assert not front.complaints


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a%20b/%C3%A9?q=%2F", "/a b/é"),
        (b"//there/mcp", "//there/mcp"),
        (b"http://here/mcp?q", "/mcp"),
        (b"HTTP://HERE:80", ""),
        (b"*", "*"),
        (b"/%", "/%"),
        (b"/a?b?c", "/a"),
    ],
)
async def test_a_target_has_a_path(serve: Serve, target: bytes, path: str) -> None:
    """Origin and absolute form have a path, decoded and without the query; nothing else is taken for one."""
    async with serve() as front:
        await front.talk(b"OPTIONS " + target + b" HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
        [request] = front.service.requests
        assert (request.path, request.target) == (path, target.decode())


# --- several requests -------------------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    """Requests sent without waiting get their answers in the order they came."""
    async with serve(Patience()) as front:
        asked = [b"GET /%d HTTP/1.1\r\n" % n + HOST + b"\r\n" for n in range(40)]
        answer = await front.talk(b"".join(asked) + GET + b"Connection: close\r\n\r\n")
        said = [line for line in answer.split(b"\r\n") if line.startswith(b"X-Path")]
        assert said == [*(b"X-Path: /%d" % n for n in range(40)), b"X-Path: /mcp"]


async def test_reading_stops_behind_a_long_queue(serve: Serve) -> None:
    """While one request is served only so many more are taken from the socket."""
    async with serve(Patience()) as front, front.connect() as (_, writer):
        writer.write(GET.replace(b"/mcp", b"/wait") + b"\r\n")
        await front.service.came.wait()
        writer.transport.set_write_buffer_limits(high=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                while True:
                    writer.write(ASKED.replace(b"\r\n\r\n", b"\r\nX: " + b"a" * 20000 + b"\r\n\r\n"))
                    await writer.drain()
        connection = front.connection
        assert 8 <= len(connection._waiting) < 40


async def test_a_flood_in_one_read_is_bounded(serve: Serve) -> None:
    """Tiny requests behind a slow one are answered up to a limit, then refused."""
    async with serve() as front:
        answer = await front.talk(b"GET / HTTP/1.1\r\nHost:\r\n\r\n" * 2000)
        assert answer.count(b"HTTP/1.1 200") == 257
        assert answer.count(b"HTTP/1.1 429") == 1


async def test_garbage_behind_a_request_does_not_spoil_its_answer(serve: Serve) -> None:
    """A complete request is answered, whatever its client sends next."""
    async with serve() as front:
        answer = await front.talk(ASKED + b"garbage\r\n\r\n")
        assert [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP")] == [
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 400 Bad Request",
        ]
        closed = await front.talk(GET + b"Connection: close\r\n\r\n" + ASKED)
        assert closed.count(b"HTTP/1.1 ") == 1


async def test_connect_is_no_tunnel(serve: Serve) -> None:
    """CONNECT reaches the handler like any request, and what follows it is not read as HTTP."""
    async with serve() as front:
        answer = await front.talk(b"CONNECT there:1 HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n\r\n")
        assert len(STATUS_LINE.findall(answer)) == 1
        assert front.service.requests[0].path == ""


@pytest.mark.parametrize(
    ("head", "framing"),
    [
        (b"GET /stream HTTP/1.0\r\n\r\n", b"Connection: close\r\n"),
        (b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"Connection: close\r\n"),
    ],
)
async def test_a_stream_to_http_1_0_ends_with_the_connection(
    serve: Serve, head: bytes, framing: bytes
) -> None:
    """HTTP/1.0 knows no chunks."""
    async with serve() as front:
        answer = await front.talk(head)
        assert framing in answer
        assert answer.endswith(b"\r\n\r\nonetwo")


async def test_http_1_0_may_keep_its_connection(serve: Serve) -> None:
    """Where the client asks for it and the answer has a length, and the server says so."""
    async with serve(Patience()) as front:
        kept = b"GET /mcp HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        answer = await front.talk(kept + b"GET /mcp HTTP/1.0\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200") == 2
        assert answer.count(b"Connection: keep-alive") == answer.count(b"Connection: close") == 1


# --- answering --------------------------------------------------------------------------------------------------


async def test_an_empty_piece_does_not_end_a_stream(serve: Serve) -> None:
    """An empty chunk would be read as the last one."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.write(GET.replace(b"/mcp", b"/stream") + b"\r\n")
        assert await read_body(reader, await read_head(reader)) == b"onetwo"


@pytest.mark.parametrize(("number", "length"), [(204, None), (304, None), (200, "4")])
async def test_a_head_alone(serve: Serve, number: int, length: str | None) -> None:
    """204 and 304 have neither body nor length; an answer to HEAD has the length that GET would have."""
    method = b"HEAD" if number == 200 else b"GET"
    async with serve() as front:
        answer = await front.talk(
            method + b" /status/%d HTTP/1.1\r\nConnection: close\r\n" % number + HOST + b"\r\n"
        )
        assert answer.endswith(b"\r\n\r\n")
        lengths = [line[16:].decode() for line in answer.split(b"\r\n") if line.startswith(b"Content-Length")]
        assert lengths == ([] if length is None else [length])


@pytest.mark.parametrize("path", [b"/split", b"/raise", b"/nothing"])
async def test_a_failing_handler_is_a_500(serve: Serve, path: bytes) -> None:
    """Also a field that would split the answer; the failure is reported once and the connection closed."""
    async with serve() as front:
        answer = await front.talk(GET.replace(b"/mcp", path) + b"\r\n")
        assert status(answer) == 500
        assert b"X-C" not in answer
        assert len(front.complaints) == 1


@pytest.mark.parametrize("path", [b"/break", b"/short"])
async def test_an_answer_that_fails_midway_is_broken_off(serve: Serve, path: bytes) -> None:
    """A client never takes half an answer for a whole one."""
    async with serve() as front, front.connect() as (reader, writer):
        writer.write(GET.replace(b"/mcp", path) + b"\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_body(reader, await read_head(reader))


async def test_continue_is_said_when_the_body_is_wanted(serve: Serve) -> None:
    """A client that waits with its body is told to go on, once."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        assert (await read_head(reader)).status == 100
        writer.write(b"he")
        await asyncio.sleep(0)
        writer.write(b"llo")
        head = await read_head(reader)
        assert (head.status, await read_body(reader, head)) == (200, b"hello")


@pytest.mark.parametrize(
    "head",
    [
        POST + b"Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\nhello",
        POST.replace(b"/mcp", b"/refuse") + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n",
        b"POST /refuse HTTP/1.0\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    ],
)
async def test_continue_is_not_said_for_nothing(serve: Serve, head: bytes) -> None:
    """Neither when the body is here already, nor when it is not wanted."""
    async with serve() as front:
        assert status(await front.talk(head)) in (200, 413)


async def test_a_refusal_is_readable_while_the_body_still_comes(serve: Serve) -> None:
    """The client that keeps sending reads its 413, and is cut off soon."""
    async with serve(Patience(linger=0.3)) as front, front.connect() as (reader, writer):
        writer.write(POST.replace(b"/mcp", b"/refuse") + b"Content-Length: 999999999\r\n\r\n")
        head = await read_head(reader)
        assert (head.status, await read_body(reader, head)) == (413, b"too large")
        with pytest.raises(ConnectionError):
            while True:
                writer.write(bytes(65536))
                await writer.drain()
                await asyncio.sleep(0)


async def test_an_answer_before_the_end_of_the_body_says_that_it_is_the_last(serve: Serve) -> None:
    """The connection is closed behind it, so its client must not send another request there."""
    async with serve() as front, front.connect() as (reader, writer):
        for part, expected in ((b"whole", None), (b"par", "close")):
            writer.write(POST.replace(b"/mcp", b"/refuse") + b"Content-Length: 5\r\n\r\n" + part)
            head = await read_head(reader)
            assert head.get("connection") == expected
            assert await read_body(reader, head) == b"too large"


# --- leaving ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/wait", b"/mcp", b"/flood"])
async def test_a_client_that_goes_ends_its_exchange(serve: Serve, path: bytes) -> None:
    """Whether it is being waited for, read from or written to."""
    async with serve(Patience()) as front:
        async with front.connect() as (_, writer):
            writer.write(POST.replace(b"/mcp", path) + b"Content-Length: 5\r\n\r\nhel")
            await front.service.came.wait()
        await front.service.ended.wait()
        assert front.service.end in ("cancelled", "gone")
        assert not front.complaints


async def test_a_half_closed_client_gets_its_answer(serve: Serve) -> None:
    """Closing one's own side after a request is no withdrawal of it (RFC 9112, 9.6)."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.write(GET.replace(b"/mcp", b"/wait") + b"\r\n" + ASKED)
        writer.write_eof()
        await front.service.came.wait()
        await asyncio.sleep(0.02)
        front.service.go.set()
        assert (await heard(reader)).count(b"HTTP/1.1 200") == 2


async def test_a_half_closed_client_is_not_waited_for_long(serve: Serve) -> None:
    """It looks just like one that has gone, so a long exchange is cancelled."""
    async with serve() as front, front.connect() as (_, writer):
        writer.write(GET.replace(b"/mcp", b"/wait") + b"\r\n")
        await front.service.came.wait()
        writer.write_eof()
        await front.service.ended.wait()
        assert front.service.end == "cancelled"


async def test_a_request_cut_short_by_eof_is_over(serve: Serve) -> None:
    """Nothing is waited for when the client closes in the middle of its body."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.write(POST + b"Content-Length: 5\r\n\r\nhel")
        await front.service.came.wait()
        writer.write_eof()
        assert await heard(reader) == b""
        assert front.service.end == "cancelled"


async def test_a_slow_reader_holds_the_writer(serve: Serve) -> None:
    """What a client does not take is not piled up here."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's own can
        writer.write(GET.replace(b"/mcp", b"/flood") + b"\r\n")
        await front.service.came.wait()
        connection = front.connection
        written = -1
        while front.service.written > written or not connection._write_paused:
            written = front.service.written
            await asyncio.sleep(0.02)
        assert connection._transport.get_write_buffer_size() < 1 << 20
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # a stream's own can
        await reader.readexactly(written)


@pytest.mark.parametrize("begun", [b"", b"GET", ASKED, ASKED + b"GET / HT", b"\r\n\r\n"])
async def test_an_idle_or_slow_client_is_let_go(serve: Serve, begun: bytes) -> None:
    """Nothing asked, or a head that does not come to its end: the connection is closed."""
    async with serve() as front:
        assert (await front.talk(begun)).count(b"HTTP/1.1 200") == begun.count(ASKED)


async def test_closing_lets_exchanges_finish(serve: Serve) -> None:
    """The answer under way is the last one of its connection, and says so."""
    async with serve(Patience()) as front, front.connect() as (reader, writer):
        writer.write(GET.replace(b"/mcp", b"/wait") + b"\r\n")
        await front.service.came.wait()
        front.listener.close()
        front.service.go.set()
        answer = await heard(reader)
        assert b"Connection: close" in answer
        assert answer.endswith(b"waited")


async def test_a_reset_behind_the_last_answer_ends_the_connection(serve: Serve) -> None:
    """The socket knows of it before the loop does, and refuses to close one side; nothing is left of it."""
    async with serve(Patience()) as front:
        client = socket.create_connection(front.listener.address)

        def reset() -> None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

        front.service.reset = reset
        client.sendall(POST.replace(b"/mcp", b"/reset") + b"Content-Length: 1000000\r\n\r\nhalf")
        await front.service.ended.wait()
        await until(lambda: not front.listener._connections)
        assert front.service.end == "done"
        gc.collect()
        assert not front.complaints


async def test_dropping_ends_exchanges(serve: Serve) -> None:
    """After drop no exchange is left, and nobody is told of an unhandled failure."""
    async with serve(Patience()) as front, front.connect() as (_, writer), front.connect():
        writer.write(GET.replace(b"/mcp", b"/wait") + b"\r\n")
        await front.service.came.wait()
        await front.listener.drop()
        assert front.service.end == "cancelled"
        assert not front.complaints


async def test_nothing_is_left_of_many_connections(serve: Serve) -> None:
    """Neither descriptor nor task nor connection, however they ended."""
    async with serve() as front:
        await front.talk(GET + b"Connection: close\r\n\r\n")
        descriptors, tasks = len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks())
        for number in range(100):
            await front.talk(GET + b"Connection: close\r\n\r\n")
            await front.talk(b"garbage\r\n\r\n")
            async with front.connect() as (_, writer):
                writer.write(POST.replace(b"/mcp", b"/wait") + b"Content-Length: %d\r\n\r\n" % (number % 2))
                await asyncio.sleep(0)
        await until(lambda: not (front.listener._connections))
        assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors
        assert len(asyncio.all_tasks()) <= tasks
        assert not front.complaints


# --- the whole adapter ------------------------------------------------------------------------------------------


async def test_a_refusal_to_head_has_no_body(road: StartRoad) -> None:
    """A client of HEAD reads no body, so one would be taken for the next answer."""
    async with road() as (_, _, client):
        await client.send("HEAD")
        assert (await client.head()).status == 405
        await client.send("HEAD", path="/healthz")
        assert (await client.head())["content-length"] != "0"
        await client.initialize()
        head, _ = await client.call()
        assert head.status == 200
