"""A raw upstream and a raw client: both see the very bytes, so a test can compare them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import orjson


@dataclass
class Head:
    """The head of a request or answer; field names in lower case."""

    first: str
    fields: list[tuple[str, str]]

    def __getitem__(self, name: str) -> str:
        return next(value for field, value in self.fields if field == name)

    def get(self, name: str) -> str | None:
        return next((value for field, value in self.fields if field == name), None)

    @property
    def status(self) -> int:
        return int(self.first.split()[1])

    @property
    def method(self) -> str:
        return self.first.split()[0]


async def read_head(reader: asyncio.StreamReader) -> Head:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.rstrip("\r\n").split("\r\n")
    fields = [line.split(":", 1) for line in lines]
    return Head(first, [(name.lower(), value.strip()) for name, value in fields])


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk of a chunked body, b"" for the last one. IncompleteReadError if it breaks off."""
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    data = await reader.readexactly(size)
    await reader.readexactly(2)
    return data


async def read_body(reader: asyncio.StreamReader, head: Head) -> bytes:
    if head.get("transfer-encoding") == "chunked":
        return b"".join([chunk async for chunk in chunks(reader)])
    return await reader.readexactly(int(head.get("content-length") or 0))


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await read_chunk(reader):
        yield chunk


@dataclass
class Exchange:
    """What the upstream received, and the way to answer it byte by byte."""

    head: Head
    body: bytes
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader

    @property
    def message(self) -> dict[str, object]:
        """The JSON object that was received, decompressed if need be; of a batch or a form ``{}``."""
        if (self.head.get("content-type") or "").startswith("multipart/"):
            return {}
        coded = self.head.get("content-encoding") is not None
        text = zlib.decompress(self.body, 32 + zlib.MAX_WBITS) if coded else self.body
        # Not orjson: half a surrogate pair is legal JSON.
        read = json.loads(text) if text else {}
        return read if isinstance(read, dict) else {}

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: bytes, *fields: str) -> None:
        """A whole answer with a Content-Length."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *fields]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def json(self, body: bytes, *fields: str) -> None:
        await self.answer(200, body, "Content-Type: application/json", *fields)

    async def begin_stream(self, *fields: str) -> None:
        """The head of a chunked event stream."""
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *fields]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def stream(self, *chunks: bytes) -> None:
        """A whole event stream."""
        await self.begin_stream()
        for chunk in chunks:
            await self.chunk(chunk)
        await self.end_stream()

    def hang_up(self) -> None:
        """Close the connection in good order once everything that was sent has left, complete or not."""
        self.writer.close()

    def break_off(self) -> None:
        """Close the connection in the middle of whatever was being sent, with a reset."""
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Exchange], Awaitable[None]]


def answering(status: int, body: bytes, *fields: str) -> Script:
    """Gives every request this answer."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(status, body, *fields)

    return script


def in_json(body: bytes, *fields: str) -> Script:
    """Gives every request this JSON."""
    return answering(200, body, "Content-Type: application/json", *fields)


def in_events(*chunks: bytes) -> Script:
    """Answers every request with this stream."""

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*chunks)

    return script


def beginning(*chunks: bytes) -> Script:
    """Answers every request with a stream of these, and with nothing more until its client has gone."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(chunk)
        await exchange.gone()

    return script


def in_two(go: asyncio.Event, first: bytes, second: bytes) -> Script:
    """Answers every request with a stream of two chunks, the second of which comes at a sign."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(first)
        await go.wait()
        await exchange.chunk(second)
        await exchange.end_stream()

    return script


async def silent(exchange: Exchange) -> None:
    """Answers nothing."""
    await exchange.gone()


accepted = answering(202, b"")
"""What upstreams say to a notification."""


def initialize_result(number: object, version: str = "2025-11-25") -> bytes:
    return orjson.dumps(
        {
            "jsonrpc": "2.0",
            "id": number,
            "result": {
                "protocolVersion": version,
                "capabilities": {},
                "serverInfo": {"name": "raw", "version": "1"},
            },
        }
    )


@dataclass
class RawUpstream:
    """An upstream that opens sessions by itself and gives every other request to ``script``.

    ``sessions`` are the ones it knows; a request in another one gets 404. ``seen`` holds all exchanges.
    ``opening`` answers ``initialize`` in its place, ``hearing`` notifications.
    """

    script: Script
    version: str = "2025-11-25"
    opening: Script | None = None
    hearing: Script | None = None
    sessions: set[str] = field(default_factory=set)
    seen: list[Exchange] = field(default_factory=list)
    opened: int = 0
    port: int = 0
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Gone, as a killed process is: nothing listens, every connection is reset, sessions are forgotten."""
        assert self._server is not None
        self._server.close()
        # A connection that was just taken needs three turns until it is among the writers.
        for _ in range(3):
            await asyncio.sleep(0)
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        self.sessions.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def calls(self, method: str) -> list[Exchange]:
        """The exchanges whose JSON-RPC method, or else HTTP method, is ``method``."""
        return [each for each in self.seen if each.message.get("method", each.head.method) == method]

    async def arrived(self, method: str) -> Exchange:
        """The first exchange of ``calls(method)``, as soon as it has come."""
        async with asyncio.timeout(20):
            while not (came := self.calls(method)):
                self._arrival.clear()
                await self._arrival.wait()
        return came[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await read_head(reader)
                if head.get("expect") is not None:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                exchange = Exchange(head, await read_body(reader, head), writer, reader)
                self.seen.append(exchange)
                self._arrival.set()
                await self._answer(exchange)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, exchange: Exchange) -> None:
        message, session = exchange.message, exchange.head.get("mcp-session-id")
        if message.get("method") == "initialize" and self.opening is not None:
            await self.opening(exchange)
        elif message.get("method") == "initialize":
            self.opened += 1
            name = f"upstream-{self.opened}"
            self.sessions.add(name)
            await exchange.json(initialize_result(message["id"], self.version), f"Mcp-Session-Id: {name}")
        elif session is not None and session not in self.sessions:
            await exchange.answer(404, b"Session not found")
        elif str(message.get("method", "")).startswith("notifications/"):
            await (self.hearing or accepted)(exchange)
        elif message.get("method") == "ping":
            await exchange.json(b'{"jsonrpc":"2.0","id":%s,"result":{}}' % orjson.dumps(message["id"]))
        elif exchange.head.method == "DELETE":
            self.sessions.discard(session or "")
            await exchange.answer(200, b"")
        else:
            await self.script(exchange)


def initialize_body(
    version: str = "2025-11-25", name: str = "raw", capabilities: dict[str, Any] | None = None
) -> bytes:
    """The request with which a client of this name opens a session."""
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": name, "version": "1"},
    }
    return orjson.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})


INITIALIZE = initialize_body()


class RawClient:
    """One keep-alive connection to the adapter; nothing is added but what HTTP needs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.session: str | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    @property
    def reader(self) -> asyncio.StreamReader:
        assert self._reader is not None
        return self._reader

    async def send(self, method: str, body: bytes = b"", path: str = "/mcp", **fields: str) -> None:
        """Send a request; ``fields`` are header fields with ``_`` for ``-``."""
        assert self._writer is not None
        head = {
            "host": f"127.0.0.1:{self.port}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        if self.session is not None:
            head["mcp-session-id"] = self.session
        head |= {name.replace("_", "-"): value for name, value in fields.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items() if value)]
        self._writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        await self._writer.drain()

    async def send_more(self, data: bytes) -> None:
        """Bytes as they are, such as a body that was announced before."""
        assert self._writer is not None
        self._writer.write(data)
        await self._writer.drain()

    async def head(self) -> Head:
        return await read_head(self.reader)

    async def request(
        self, method: str, body: bytes = b"", path: str = "/mcp", **fields: str
    ) -> tuple[Head, bytes]:
        """Send a request and read its whole answer."""
        await self.send(method, body, path, **fields)
        head = await self.head()
        return head, await read_body(self.reader, head)

    def stop_reading(self) -> None:
        """Take nothing more from the socket until ``read_on``."""
        assert self._writer is not None
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's own can

    def read_on(self) -> None:
        assert self._writer is not None
        self._writer.transport.resume_reading()  # type: ignore[attr-defined]  # a stream's own can

    async def read_until(self, size: int, got: bytes = b"") -> bytes:
        """Read chunks of a chunked answer until at least ``size`` bytes of body have come, ``got`` included."""
        while len(got) < size:
            chunk = await read_chunk(self.reader)
            assert chunk, "the answer ended early"
            got += chunk
        return got

    async def call(self, name: str = "tool", number: int = 1) -> tuple[Head, bytes]:
        return await self.request("POST", call_body(name, number))

    async def modern_call(self, name: str = "tool", number: int = 1) -> tuple[Head, bytes]:
        """A call of the stateless era, its headers mirroring its body."""
        return await self.request("POST", modern_body(name, number), **modern_fields(name))

    async def initialize(self, body: bytes = INITIALIZE, /, **fields: str) -> Head:
        """Open a session and go on in it."""
        self.session = None
        head, answer = await self.request("POST", body, **fields)
        assert head.status == 200, answer
        self.session = head["mcp-session-id"]
        return head


def call_body(name: str = "tool", number: int = 1) -> bytes:
    return orjson.dumps(
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
    )


MODERN_VERSION = "2026-07-28"


MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""What a request of the stateless era says in ``_meta``."""


def modern_body(name: str = "tool", number: int = 1) -> bytes:
    params = {"name": name, "arguments": {}, "_meta": MODERN_META}
    return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})


def modern_fields(name: str = "tool") -> dict[str, str]:
    """The header fields of ``modern_body``, in the spelling of ``RawClient.send``."""
    return {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "tools/call", "mcp_name": name}


def error_of(body: bytes) -> dict[str, Any]:
    """The error of a JSON-RPC response, with the id it was sent under as ``"id"``."""
    message = orjson.loads(body)
    return {**message["error"], "id": message["id"]}


def event(data: bytes, number: str | None = None) -> bytes:
    return (f"id: {number}\n".encode() if number else b"") + b"data: " + data + b"\n\n"


def result(number: int, text: str = "done") -> bytes:
    return orjson.dumps(
        {"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}}
    )
