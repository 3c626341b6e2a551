"""A raw MCP-like upstream, so cheap that what is measured in front of it is the proxy.

``python -m tests.bench.upstream`` prints its port as the first line on stdout. It speaks just enough of
2025-11-25 for the load client and for FastMCP's proxy. Tools:

* ``echo`` answers a small JSON body, head and body in one write; ``reply`` one with ``"isError":false``, as the
  official Python SDK writes it, whatever it is sent.
* ``big`` answers 1 MiB of text as JSON with Content-Length.
* ``stream`` answers SSE: ``events`` progress notifications (20) and the result, each an own write with
  a turn of the loop, or ``pause_ms``, between them.
* ``take`` opens the file at ``path``, ``make`` writes ``size`` bytes to ``output``; both answer a small JSON body.

A GET opens an SSE stream that stays until the client goes; DELETE drops the session. ``GET /streams``
is for the measurer: how many streams are open.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import httptools
import orjson
import uvloop

PROTOCOL_VERSION = "2025-11-25"
EVENTS_IN_STREAM = 20
BIG_TEXT = "x" * (1024 * 1024)
TOOLS = [
    {"name": name, "description": f"The benchmark's {name}.", "inputSchema": {"type": "object"}}
    for name in ("echo", "reply", "big", "stream", "take", "make")
]
BIG_RESULT = orjson.dumps({"content": [{"type": "text", "text": BIG_TEXT}]})
REPLY = b'{"content":[{"type":"text","text":"done"}],"isError":false}'


def _said(text: object) -> bytes:
    return orjson.dumps({"content": [{"type": "text", "text": str(text)}]})


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole answer, to leave in one write."""
    head = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def json_answer(request_id: object, result: bytes, *headers: str) -> bytes:
    body = b'{"jsonrpc":"2.0","id":' + orjson.dumps(request_id) + b',"result":' + result + b"}"
    return response("200 OK", body, "Content-Type: application/json", *headers)


def event_chunk(message: bytes) -> bytes:
    """One SSE event as one HTTP chunk."""
    event = b"event: message\r\ndata: " + message + b"\r\n\r\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
OPENED = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"open"}}'
LAST_CHUNK = b"0\r\n\r\n"


class UpstreamConnection(asyncio.Protocol):
    """One keep-alive connection. ``sessions`` are those of all, until their DELETE.

    Requests come one after another, as every MCP client sends them.
    """

    streams: ClassVar[set[UpstreamConnection]] = set()
    """Those whose GET stream is open."""

    def __init__(self, sessions: set[str]) -> None:
        self._sessions = sessions
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._url = self._session = self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is none

    def connection_lost(self, exc: Exception | None) -> None:
        self.streams.discard(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    # httptools calls these
    def on_message_begin(self) -> None:
        self._url = self._session = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mcp-session-id":
            self._session = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        session = self._session.decode()
        if method == b"GET" and self._url == b"/streams":
            self._write(response("200 OK", b"%d" % len(self.streams)))
        elif session and session not in self._sessions:
            self._write(response("404 Not Found"))
        elif method == b"POST":
            self._answer(orjson.loads(self._body))
        elif method == b"GET":
            self._hold()
        elif method == b"DELETE":
            self._sessions.discard(session)
            self._write(response("200 OK"))
        else:
            self._write(response("405 Method Not Allowed"))

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _hold(self) -> None:
        """Answer a GET with a stream that says one thing, so that a client can tell that it is open."""
        self.streams.add(self)
        self._write(STREAM_HEAD + event_chunk(OPENED))

    def _answer(self, message: dict[str, Any]) -> None:
        method, request_id = message.get("method"), message.get("id")
        if request_id is None:
            self._write(response("202 Accepted"))
        elif method == "tools/call":
            self._call(request_id, message["params"])
        elif method == "initialize":
            result = {
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench", "version": "1"},
            }
            self._sessions.add(minted := secrets.token_hex(16))
            self._write(json_answer(request_id, orjson.dumps(result), f"Mcp-Session-Id: {minted}"))
        elif method == "tools/list":
            self._write(json_answer(request_id, orjson.dumps({"tools": TOOLS})))
        elif method == "ping":
            self._write(json_answer(request_id, b"{}"))
        else:
            error = {"code": -32601, "message": f"No method {method}."}
            body = orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
            self._write(response("200 OK", body, "Content-Type: application/json"))

    def _call(self, request_id: object, params: dict[str, Any]) -> None:
        if params["name"] == "big":
            self._write(json_answer(request_id, BIG_RESULT))
        elif params["name"] == "stream":
            self._start_stream(request_id, params)
        elif params["name"] == "reply":
            self._write(json_answer(request_id, REPLY))
        elif params["name"] == "take":
            self._write(json_answer(request_id, _said(Path(params["arguments"]["path"]).stat().st_size)))
        elif params["name"] == "make":
            # Nobody else waits here meanwhile, and it is not this process that is counted.
            Path(params["arguments"]["output"]).write_bytes(bytes(int(params["arguments"]["size"])))
            self._write(json_answer(request_id, _said("written")))
        else:
            arguments = orjson.dumps(params.get("arguments", {})).decode()
            self._write(json_answer(request_id, _said(arguments)))

    def _start_stream(self, request_id: object, params: dict[str, Any]) -> None:
        arguments = params.get("arguments", {})
        token = params.get("_meta", {}).get("progressToken", request_id)
        progress = {"progressToken": token, "progress": 0, "message": "another step is done"}
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
        chunks = []
        for step in range(1, arguments.get("events", EVENTS_IN_STREAM) + 1):
            progress["progress"] = step
            chunks.append(event_chunk(orjson.dumps(note)))
        result = {"content": [{"type": "text", "text": "done"}]}
        answer = {"jsonrpc": "2.0", "id": request_id, "result": result}
        chunks.append(event_chunk(orjson.dumps(answer)))
        self._write(STREAM_HEAD)
        self._send_next(chunks, 0, arguments.get("pause_ms", 0) / 1000)

    def _send_next(self, chunks: list[bytes], position: int, pause: float) -> None:
        if position == len(chunks):
            self._write(LAST_CHUNK)
            return
        self._write(chunks[position])
        # At least one turn of the loop between two events: each leaves as a write of its own.
        asyncio.get_running_loop().call_later(pause, self._send_next, chunks, position + 1, pause)


async def serve(connection: Callable[[set[str]], UpstreamConnection] = UpstreamConnection) -> None:
    """Serve on a free port of the loopback interface, until the process is ended."""
    sessions: set[str] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: connection(sessions), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
