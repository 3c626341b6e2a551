"""One GET stream of a server for all who share its session: each message goes to whom it is for, or to everybody."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from adapter.errors import AdapterError, LimitReached
from adapter.relay.replies import media_type, require_plain
from adapter.relay.turns import slices
from adapter.rules.access.shared_sessions import MANY
from adapter.upstream.port import Headers, UpstreamReply, silent
from adapter.wire.shared_ids import Addressed
from adapter.wire.sse import SseEvent, SseReader, encode, replace_data, replace_id

QUEUE_BYTES = 1 << 20
"""Bytes that wait for one listener. One that falls further behind has its stream ended, and comes back for the rest."""

QUEUE_EVENTS = 1000
"""Events that wait for one listener, as the last."""

JOINED_BYTES = 64 << 10
"""Bytes of several events that are handed on at once."""

TELLINGS = 1000
"""Events times listeners after which others get their turns."""

PAUSE = 0.005
"""Seconds of those. Each event wakes every listener, so a flood without a pause would fill each turn of the loop."""

REPLAY_EVENTS = 256
"""Events that are kept for listeners that come back with ``Last-Event-ID``."""

REPLAY_BYTES = 1 << 20
"""Bytes of those events."""

RETRY_AFTER = 5.0

_MARKED = re.compile(r"[0-9a-f]{8}\*")

ReadEvent = Callable[[bytes, int], Awaitable[list[Addressed]]]
"""The messages in the data of an event, which so many streams are going to get."""


class ListenerReply:
    """An UpstreamReply: the stream of one listener. ``left`` is called when nobody listens to it any more."""

    status = 200
    whole: bytes | None = None
    needs_request = False

    def __init__(self, member: str, left: Callable[[ListenerReply], None]) -> None:
        self.member = member
        self.headers: Headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
        self._left = left
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._over = False

    @property
    def over(self) -> bool:
        """True when nothing more is taken."""
        return self._over

    def put(self, piece: bytes) -> None:
        """Take whole events. One more than fits ends the stream, behind what is there."""
        if self._over:
            return
        full = self._size + len(piece) > QUEUE_BYTES or len(self._queue) >= QUEUE_EVENTS
        if self._queue and full:
            self.end()
            return
        self._queue.append(piece)
        self._size += len(piece)
        self._news.set()

    def end(self) -> None:
        """Let the stream end when what is there was read."""
        self._over = True
        self._left(self)
        self._news.set()

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        try:
            async with asyncio.timeout(read_timeout):
                while not self._queue and not self._over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise silent(read_timeout) from None
        # The queues of all listeners hold the same pieces; what is joined is this one's alone, so it is not much.
        taken: list[bytes] = []
        size = 0
        while self._queue and (not taken or size + len(self._queue[0]) <= JOINED_BYTES):
            taken.append(self._queue.popleft())
            size += len(taken[-1])
        self._size -= size
        return taken[0] if len(taken) == 1 else b"".join(taken)

    def abort(self) -> None:
        """See UpstreamReply."""
        if not self._over:
            self._over = True
            self._queue.clear()
            self._left(self)
            self._news.set()


@dataclass(slots=True)
class _Said:
    """An event that was said. ``tag``: for whom it is, None for everybody."""

    id: bytes
    tag: str | None
    raw: bytes


class FanOut:
    """The listeners of one shared session, ``most`` of them at once.

    ``read_event`` reads what an event says; ``limit`` are bytes of one. ``epoch`` marks event ids of this stream.
    """

    def __init__(self, epoch: str, read_event: ReadEvent, *, limit: int, most: int) -> None:
        self._mark = f"{epoch}*".encode("ascii")
        self._read_event = read_event
        self._limit = limit
        self._most = most
        self._listeners: list[ListenerReply] = []
        self._opening = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._said: deque[_Said] = deque()
        self._said_bytes = 0

    def __repr__(self) -> str:
        return f"<FanOut: {len(self._listeners)} listeners>"

    def place(self, last_event_id: str | None) -> tuple[bool, str | None]:
        """Tell whether that event, or none, is of this stream, and give the server's own id of it.

        That is None for no event, and for one of the session before.
        """
        if last_event_id is None:
            return True, None
        mark = self._mark.decode("ascii")
        if last_event_id.startswith(mark):
            return True, last_event_id.removeprefix(mark)
        return _MARKED.match(last_event_id) is not None, None

    async def join(
        self, member: str, after: str | None, listen: Callable[[], Awaitable[UpstreamReply]]
    ) -> UpstreamReply:
        """A stream for that member, from behind the event ``after`` where that is still known.

        ``listen`` opens the server's stream; a refusal is the answer. Raises LimitReached, and what ``listen`` raises.
        """
        if len(self._listeners) >= self._most:
            raise LimitReached(
                f"{self._most} streams are open in this session, and core.upstream.max_streams allows no more.",
                data={
                    "limit": self._most,
                    "setting": "core.upstream.max_streams",
                    "retry_after": RETRY_AFTER,
                },
                retry_after=RETRY_AFTER,
            )
        listener = ListenerReply(member, self._leave)
        self._listeners.append(listener)
        if self._reading is not None:
            if after is not None:
                self._repeat(listener, after.encode("latin-1", "replace"))
            return listener
        try:
            refusal = await self._open(listen)
        except BaseException:
            self._leave(listener)
            raise
        if refusal is not None or listener.over:
            # It may be over already, where the server ended its stream at once.
            self._leave(listener)
        return refusal or listener

    async def _open(self, listen: Callable[[], Awaitable[UpstreamReply]]) -> UpstreamReply | None:
        """Open the server's stream, once for all who wait; its answer where that is no stream."""
        async with self._opening:
            if self._reading is not None:
                return None
            reply = await listen()
            if reply.status != 200 or media_type(reply) != "text/event-stream":
                return reply
            require_plain(reply)
            self._reading = asyncio.get_running_loop().create_task(self._read(reply))
            # A task that is cancelled before its first step never comes to its finally.
            self._reading.add_done_callback(lambda _: reply.abort())
            return None

    def tell(self, tag: str | None, piece: bytes) -> None:
        """Say whole events to whom they are for.

        Several clients speak for some members. What is for one of those comes on its own request's stream only, for
        here nobody could tell which of them it is.
        """
        if tag is None:
            for listener in self._one_of_each():
                listener.put(piece)
            return
        whose = [each for each in self._listeners if each.member == tag and not tag.startswith(MANY)]
        # A message goes to one stream of a client only (MCP 2025-11-25, "Multiple Connections").
        for listener in whose[-1:]:
            listener.put(piece)

    def tell_others(self, member: str, data: bytes) -> None:
        """Say a message to everybody but that member."""
        for listener in self._one_of_each():
            if listener.member != member:
                listener.put(encode(data))

    def end(self, member: str | None = None) -> None:
        """End the streams of one member; of all without one."""
        for listener in [each for each in self._listeners if member in (None, each.member)]:
            listener.end()

    async def close(self) -> None:
        """End every stream, and the server's."""
        self.end()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))

    # --- reading ----------------------------------------------------------------------------------------------

    async def _read(self, reply: UpstreamReply) -> None:
        """Read the server's stream to its end or break, which is the end of all listeners; they come back."""
        reader = SseReader(self._limit)
        tellings = 0
        try:
            while chunk := await reply.read(None):
                for part in slices(chunk):
                    for event in reader.feed(part):
                        await self._pass(event)
                        tellings += 1 + len(self._listeners)
                        if tellings > TELLINGS:
                            tellings = 0
                            await asyncio.sleep(PAUSE)
        except AdapterError:
            return
        finally:
            # Where nobody listened any more, who has come since waits for another stream.
            if self._reading is asyncio.current_task():
                self._reading = None
                for listener in list(self._listeners):
                    listener.end()

    async def _pass(self, event: SseEvent) -> None:
        if not event.data:
            self._say(event, None, event.raw)
            return
        for message in await self._read_event(event.data, len(self._one_of_each())):
            same = message.data is event.data
            self._say(event, message.tag, event.raw if same else replace_data(event, message.data))

    def _say(self, event: SseEvent, tag: str | None, raw: bytes) -> None:
        raw = raw[event.lead :]
        if event.id is not None:
            raw = replace_id(SseEvent(raw, event.data), self._mark + event.id)
            self._remember(_Said(event.id, tag, raw))
        self.tell(tag, raw)

    def _remember(self, said: _Said) -> None:
        self._said.append(said)
        self._said_bytes += len(said.raw)
        while len(self._said) > REPLAY_EVENTS or self._said_bytes > REPLAY_BYTES:
            self._said_bytes -= len(self._said.popleft().raw)

    def _repeat(self, listener: ListenerReply, after: bytes) -> None:
        """Say again what was said behind that event, as far as it was for this listener."""
        missed: list[_Said] | None = None
        for said in self._said:
            if missed is not None:
                missed.append(said)
            if said.id == after:
                missed = []
        for said in missed or ():
            if said.tag is None or (said.tag == listener.member and not said.tag.startswith(MANY)):
                listener.put(said.raw)

    # --- listeners --------------------------------------------------------------------------------------------

    def _one_of_each(self) -> list[ListenerReply]:
        """The newest stream of each member, and all of those that several clients speak for."""
        newest = {each.member: each for each in self._listeners}
        return [each for each in self._listeners if each.member[:1] == MANY or newest[each.member] is each]

    def _leave(self, listener: ListenerReply) -> None:
        """Nobody listens there any more; without any listener the server's stream is closed."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)
        if not self._listeners and self._reading is not None:
            self._reading.cancel()
            self._reading = None
