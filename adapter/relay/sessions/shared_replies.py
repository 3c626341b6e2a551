"""Answers in a shared session on their way back to the client that asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from adapter.errors import MessageTooLong
from adapter.relay.replies import too_large
from adapter.relay.turns import breathe, slices
from adapter.upstream.port import Headers, UpstreamReply
from adapter.wire.sse import SseReader, replace_data

FRAMING = frozenset({"content-length", "transfer-encoding", "content-encoding", "mcp-session-id"})
"""Fields (lower case) of an answer that do not hold for the one that is made of it."""

ReadMessage = Callable[[bytes], Awaitable[bytes | None]]
"""The data of an event as this client may have it; None where it is for somebody else."""


def kept_fields(headers: Headers) -> list[tuple[str, str]]:
    """The fields of an answer that also hold when its body was edited."""
    return [field for field in headers if field[0].lower() not in FRAMING]


class EditedStream:
    """An UpstreamReply that is an event stream, each message of which passes through ``read_message``.

    ``done`` is called once, when it has ended or was dropped. ``limit``: bytes of one event.
    """

    whole: bytes | None = None

    def __init__(
        self, reply: UpstreamReply, read_message: ReadMessage, limit: int, done: Callable[[], None]
    ) -> None:
        self.status = reply.status
        self.headers = kept_fields(reply.headers)
        self._reply = reply
        self._read_message = read_message
        self._reader = SseReader(limit)
        self._done: Callable[[], None] | None = done

    @property
    def needs_request(self) -> bool:
        """See UpstreamReply."""
        return self._reply.needs_request

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply. Raises AnswerTooLarge for an event above the limit."""
        while True:
            chunk = await self._reply.read(read_timeout)
            if not chunk:
                rest = self._reader.rest if self._done is not None else b""
                self._finish()
                return rest
            if piece := await self._edited(chunk):
                return piece

    async def _edited(self, chunk: bytes) -> bytes:
        leaving: list[bytes] = []
        try:
            for part in slices(chunk):
                events = self._reader.feed(part)
                for event in events:
                    data = await self._read_message(event.data) if event.data else event.data
                    if data is event.data:
                        leaving.append(event.raw)
                    elif data is not None:
                        leaving.append(replace_data(event, data))
                await breathe(len(events))
        except MessageTooLong:
            self.abort()
            raise too_large(self._reader.limit) from None
        except BaseException:
            self.abort()
            raise
        return b"".join(leaving)

    def abort(self) -> None:
        """See UpstreamReply."""
        self._reply.abort()
        self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()
