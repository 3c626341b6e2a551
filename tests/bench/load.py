"""A raw MCP client, cheap enough to load a proxy from the same two cores. It sends what real clients send."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast
from urllib.parse import urlsplit

import httptools
import orjson

from tests.bench.upstream import PROTOCOL_VERSION

BOUNDARY = "------------------------7b1cd74496d66958"
"""Of forms, as curl makes it."""

ANSWER_TIMEOUT = 60.0
"""Seconds without a whole answer after which a measurement is given up."""


class Address(NamedTuple):
    """Where a front listens; ``bearer`` is the credential it wants, or empty."""

    port: int
    path: str
    bearer: str = ""


@dataclass(slots=True)
class Answer:
    """``first_event`` is the seconds from the request's write to the first ``data:`` of the answer."""

    status: int
    session: str
    body: bytes
    first_event: float


class LoadFailed(Exception):
    """A front answered what no call of a benchmark may be answered, so its numbers would mean nothing."""


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: Any = None
        self._pending: asyncio.Future[Answer] | None = None
        self._only_head = False
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._session = ""
        self._first_event = 0.0
        self._sent = 0.0

    @classmethod
    async def open(cls, port: int) -> Connection:
        _, protocol = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is none

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(LoadFailed("The front closed the connection before it had answered."))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # httptools calls these
    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mcp-session-id":
            self._session = value.decode()

    def on_headers_complete(self) -> None:
        if self._only_head:
            self._finish()

    def on_body(self, body: bytes) -> None:
        if not self._first_event and b"data:" in body:
            self._first_event = time.perf_counter() - self._sent
        if not self._only_head:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._pending is not None and not self._pending.done():
            status = self._parser.get_status_code()
            self._pending.set_result(Answer(status, self._session, b"".join(self._pieces), self._first_event))

    async def exchange(self, request: bytes, *, only_head: bool = False) -> Answer:
        """Send one request; the answer when it is whole, or, with ``only_head``, when its head is here."""
        self._reset()
        self._only_head = only_head
        self._pending = self._loop.create_future()
        # A timer handle, not asyncio.timeout: the load shares two cores with what it measures.
        deadline = self._loop.call_later(ANSWER_TIMEOUT, self._give_up, self._pending)
        self._sent = time.perf_counter()
        self._transport.write(request)
        try:
            return await self._pending
        finally:
            deadline.cancel()

    def _give_up(self, pending: asyncio.Future[Answer]) -> None:
        if not pending.done():
            pending.set_exception(LoadFailed(f"No answer within {ANSWER_TIMEOUT:.0f} seconds."))

    def close(self) -> None:
        self._transport.abort()


class Client:
    """One MCP client on one connection: at most one session at a time."""

    def __init__(self, address: Address, connection: Connection) -> None:
        self._address = address
        self._connection = connection
        self._id = 0
        self._heads: dict[str, bytes] = {}
        self.session = ""

    @classmethod
    async def connect(cls, address: Address) -> Self:
        return cls(address, await Connection.open(address.port))

    def close(self) -> None:
        self._connection.close()

    def _head(self, method: str) -> bytes:
        known = self._heads.get(method)
        if known is not None:
            return known
        lines = [f"{method} {self._address.path} HTTP/1.1", f"Host: 127.0.0.1:{self._address.port}"]
        if self._address.bearer:
            lines.append(f"Authorization: Bearer {self._address.bearer}")
        if self.session:
            lines += [f"Mcp-Session-Id: {self.session}", f"MCP-Protocol-Version: {PROTOCOL_VERSION}"]
        if method == "POST":
            lines += ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
        else:
            lines.append("Accept: text/event-stream")
        head = self._heads[method] = "\r\n".join(lines).encode()
        return head

    async def _post(self, message: bytes) -> Answer:
        request = b"%b\r\nContent-Length: %d\r\n\r\n%b" % (self._head("POST"), len(message), message)
        return await self._connection.exchange(request)

    async def initialize(self) -> None:
        """Open a session: initialize and its notification, with empty params, as some of the SDKs write it."""
        self._forget()
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self._post(orjson.dumps(message))
        if answer.status != 200 or not answer.session or b'"result"' not in answer.body:
            raise LoadFailed(f"initialize was answered {answer.status}: {answer.body[:300]!r}")
        self._forget()
        self.session = answer.session
        told = await self._post(b'{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}')
        if told.status != 202:
            raise LoadFailed(f"notifications/initialized was answered {told.status}: {told.body[:300]!r}")

    async def call(self, tool: str = "echo", **arguments: int | str) -> Answer:
        """Call a tool and check that its result came."""
        self._id += 1
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": self._id}}
        message = {"jsonrpc": "2.0", "id": self._id, "method": "tools/call", "params": params}
        return self.checked(tool, await self._post(orjson.dumps(message)))

    def checked(self, tool: str, answer: Answer) -> Answer:
        """The answer to a call, if that has a result. Raises LoadFailed."""
        if answer.status != 200 or b'"content"' not in answer.body or b'"error"' in answer.body[:300]:
            raise LoadFailed(f"{tool} was answered {answer.status}: {answer.body[:300]!r}")
        return answer

    async def list(self) -> Answer:
        """The tools, all on one page."""
        self._id += 1
        answer = await self._post(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}' % self._id)
        if answer.status != 200 or b'"tools"' not in answer.body:
            raise LoadFailed(f"tools/list was answered {answer.status}: {answer.body[:300]!r}")
        return answer

    def form(self, content: bytes) -> tuple[bytes, bytes]:
        """Head and body of an upload of one file by this session."""
        body = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'.encode()
            + content
            + f"\r\n--{BOUNDARY}--\r\n".encode()
        )
        port, path, bearer = self._address
        head = (
            f"POST /upload/{path.rpartition('/')[2]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
            f"Authorization: Bearer {bearer}\r\nMcp-Session-Id: {self.session}\r\n\r\n"
        )
        return head.encode(), body

    async def upload(self, content: bytes) -> str:
        """The handle of a file that is uploaded on this connection."""
        answer = await self._connection.exchange(b"".join(self.form(content)))
        if answer.status >= 300:
            raise LoadFailed(f"An upload was answered {answer.status}: {answer.body[:300]!r}")
        handle: str = orjson.loads(answer.body)["upload_handle"]
        return handle

    async def download(self, call: Answer) -> bytes:
        """The artifact that a call gave, by its link and on this connection."""
        url = urlsplit(orjson.loads(call.body)["result"]["_meta"]["artifact"]["download_url"])
        request = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: 127.0.0.1:{self._address.port}\r\n\r\n"
        answer = await self._connection.exchange(request.encode())
        if answer.status != 200:
            raise LoadFailed(f"A download was answered {answer.status}: {answer.body[:300]!r}")
        return answer.body

    async def held(self) -> Client:
        """The session's GET stream, open on a connection of its own."""
        other = await Client.connect(self._address)
        other.session = self.session
        await other.hold()
        return other

    async def hold(self) -> None:
        """Open the session's GET stream and keep it until ``close``; the connection is taken from then on."""
        answer = await self._connection.exchange(self._head("GET") + b"\r\n\r\n", only_head=True)
        if answer.status != 200:
            raise LoadFailed(f"The GET stream was answered {answer.status}.")

    async def delete(self) -> None:
        answer = await self._connection.exchange(self._head("DELETE") + b"\r\n\r\n")
        if answer.status not in (200, 204):
            raise LoadFailed(f"DELETE was answered {answer.status}: {answer.body[:300]!r}")
        self._forget()

    def _forget(self) -> None:
        self.session = ""
        self._heads.clear()
