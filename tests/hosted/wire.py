"""As much of a MongoDB server as a test of cancellation needs: its handshake, and a command that lasts.

The protocol is MongoDB's OP_MSG, and OP_QUERY for the first message of a connection. What it cannot show is how the
real server ends an operation; it shows that it is asked to, in the words that the real one documents.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import bson

from tests.waiting import until

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
HEADER = struct.Struct("<iiii")
INTERRUPTED = {"ok": 0.0, "code": 11601, "codeName": "Interrupted", "errmsg": "operation was interrupted"}

Document = dict[str, Any]


@dataclass
class LastingServer:
    """``{"last": 1}`` runs until its session is killed. ``running`` counts those, ``seen`` has every command,
    ``connections`` counts those now open, ``replies`` says what else a command is answered."""

    seen: list[Document] = field(default_factory=list)
    replies: dict[str, Document] = field(default_factory=dict)
    _sessions: dict[bytes, asyncio.Event] = field(default_factory=dict)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def running(self) -> int:
        return len(self._sessions)

    @property
    def connections(self) -> int:
        return len(self._writers)

    def drop(self) -> None:
        """Ends every connection and what runs on it, as a server that is killed does."""
        for killed in self._sessions.values():
            killed.set()
        self._sessions.clear()
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readexactly(HEADER.size)
                length, request, _, code = HEADER.unpack(head)
                body = await reader.readexactly(length - HEADER.size)
                command = _command(code, body)
                self.seen.append(command)
                payload = bson.encode(await self._reply(command))
                if code == OP_QUERY:
                    answer, code = struct.pack("<iqii", 8, 0, 0, 1) + payload, OP_REPLY
                else:
                    answer = struct.pack("<iB", 0, 0) + payload
                writer.write(HEADER.pack(HEADER.size + len(answer), 0, request, code) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, command: Document) -> Document:
        match next(iter(command)).lower():
            case "hello" | "ismaster":
                return {
                    "ok": 1.0,
                    "isWritablePrimary": True,
                    "ismaster": True,
                    "helloOk": True,
                    "maxWireVersion": 21,
                    "minWireVersion": 0,
                    "maxBsonObjectSize": 2**24,
                    "maxMessageSizeBytes": 48_000_000,
                    "maxWriteBatchSize": 100_000,
                    "logicalSessionTimeoutMinutes": 30,
                }
            case "last":
                session = bytes(command["lsid"]["id"])
                killed = self._sessions[session] = asyncio.Event()
                await killed.wait()
                return INTERRUPTED
            case "killsessions":
                for session in command["killSessions"]:
                    if bytes(session["id"]) in self._sessions:
                        self._sessions.pop(bytes(session["id"])).set()
        return self.replies.get(next(iter(command)), {"ok": 1.0})


def _command(code: int, body: bytes) -> Document:
    if code == OP_QUERY:
        name_end = body.index(b"\0", 4)
        return bson.decode(body[name_end + 9 :])
    # The command is the first section; documents to be written may follow in others.
    (length,) = struct.unpack_from("<i", body, 5)
    return bson.decode(body[5 : 5 + length])


@asynccontextmanager
async def lasting_server() -> AsyncIterator[tuple[LastingServer, str]]:
    """The server and the URL it has."""
    state = LastingServer()
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield state, f"mongodb://127.0.0.1:{port}/app"
    finally:
        server.close()
        with suppress(TimeoutError):
            await until(lambda: not state.connections)
