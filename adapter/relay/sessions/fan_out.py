"""One GET stream of a server for all who share its session: each message goes to its addressee, or to everybody."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable

from adapter.errors import AdapterError, LimitReached
from adapter.relay.replies import events_of, media_type, require_plain
from adapter.rules.access.sessions import MANY, EventHistory, SentEvent
from adapter.upstream.port import Headers, UpstreamReply, silent
from adapter.wire.shared_ids import Addressed
from adapter.wire.sse import SseEvent, SseReader, encode, replace_data, replace_id

QUEUE_BYTES = 1 << 20
"""Bytes that wait for one listener. One that falls further behind has its stream ended, and comes back for the rest."""

QUEUE_EVENTS = 1000
"""Events that wait for one listener, as the last."""

JOINED_BYTES = 64 << 10
"""Bytes of several events that are handed on at once."""

BURST = 1000
"""Events times listeners after which the server's stream is not read for ``PAUSE`` seconds."""

PAUSE = 0.005
"""Seconds. Each event wakes every listener, so a flood without a pause would fill each turn of the loop."""

RETRY_AFTER = 5.0

_MARKED = re.compile(r"[0-9a-f]{8}\*")

ReadEvent = Callable[[bytes, int], Awaitable[list[Addressed]]]
"""The messages in the data of an event that so many streams are going to get."""


class ListenerReply:
    """An UpstreamReply: the stream of one listener. ``left`` is called when it ends, ``over`` is true from then on."""

    status = 200
    whole: bytes | None = None
    needs_request = False

    def __init__(self, member: str, left: Callable[[ListenerReply], None]) -> None:
        self.member = member
        self.headers: Headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache")]
        self._left = left
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._arrived = asyncio.Event()
        self.over = False

    def put(self, piece: bytes) -> None:
        """Take whole events. One more than fits ends the stream, behind what is there."""
        if self.over:
            return
        full = self._size + len(piece) > QUEUE_BYTES or len(self._queue) >= QUEUE_EVENTS
        if self._queue and full:
            self.end()
            return
        self._queue.append(piece)
        self._size += len(piece)
        self._arrived.set()

    def end(self) -> None:
        """Let the stream end when what is there was read."""
        self.over = True
        self._left(self)
        self._arrived.set()

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        try:
            async with asyncio.timeout(read_timeout):
                while not self._queue and not self.over:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise silent(read_timeout) from None
        # The queues of all listeners hold the same pieces; what is joined is this one's alone, so it is not much.
        pieces: list[bytes] = []
        size = 0
        while self._queue and (not pieces or size + len(self._queue[0]) <= JOINED_BYTES):
            pieces.append(self._queue.popleft())
            size += len(pieces[-1])
        self._size -= size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self) -> None:
        """See UpstreamReply."""
        if not self.over:
            self._queue.clear()
            self.end()


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
        self._history = EventHistory()

    def place(self, last_event_id: str | None) -> tuple[bool, str | None]:
        """Tell whether that event, or none, is of this stream, and its id at the server: None after a new session."""
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
            setting = "core.upstream.max_connections"
            raise LimitReached(
                f"{self._most} streams are open in this session, and {setting} allows no more.",
                data={"limit": self._most, "setting": setting, "retry_after": RETRY_AFTER},
                retry_after=RETRY_AFTER,
            )
        listener = ListenerReply(member, self._leave)
        self._listeners.append(listener)
        if self._reading is not None:
            if after is not None:
                for missed in self._history.after(after.encode("latin-1", "replace"), member):
                    listener.put(missed)
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
            if reply.status != 200 or media_type(reply.headers) != "text/event-stream":
                return reply
            require_plain(reply)
            self._reading = asyncio.get_running_loop().create_task(self._read(reply))
            # A task that is cancelled before its first step never comes to its finally.
            self._reading.add_done_callback(lambda _: reply.abort())
            return None

    def tell(self, tag: str | None, piece: bytes) -> None:
        """Send whole events to the member of that tag, to everybody without one.

        Members that stand for several clients get only what is for everybody: the rest comes on the stream of the
        request that it belongs to.
        """
        if tag is None:
            for listener in self._one_of_each():
                listener.put(piece)
            return
        streams = [each for each in self._listeners if each.member == tag and not tag.startswith(MANY)]
        # A message goes to one stream of a client only (MCP 2025-11-25, "Multiple Connections").
        for listener in streams[-1:]:
            listener.put(piece)

    def tell_others(self, member: str, data: bytes) -> None:
        """Send a message to everybody but that member."""
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
        """Read the server's stream to its end or break, which ends the streams of all listeners; they come back."""
        count = 0
        try:
            async for event in events_of(reply, SseReader(self._limit), None):
                await self._pass(event)
                count += 1 + len(self._listeners)
                if count > BURST:
                    count = 0
                    await asyncio.sleep(PAUSE)
        except AdapterError:
            return
        finally:
            # Listeners that came after the last one had left wait for another stream.
            if self._reading is asyncio.current_task():
                self._reading = None
                for listener in list(self._listeners):
                    listener.end()

    async def _pass(self, event: SseEvent) -> None:
        if not event.data:
            self._send(event, None, event.raw)
            return
        for message in await self._read_event(event.data, len(self._one_of_each())):
            same = message.data is event.data
            self._send(event, message.tag, event.raw if same else replace_data(event, message.data))

    def _send(self, event: SseEvent, tag: str | None, raw: bytes) -> None:
        raw = raw[event.lead :]
        if event.id is not None:
            raw = replace_id(SseEvent(raw, event.data), self._mark + event.id)
            self._history.add(SentEvent(event.id, tag, raw))
        self.tell(tag, raw)

    # --- listeners --------------------------------------------------------------------------------------------

    def _one_of_each(self) -> list[ListenerReply]:
        """The newest stream of each member; all streams of members that stand for several clients."""
        newest = {each.member: each for each in self._listeners}
        return [each for each in self._listeners if each.member[:1] == MANY or newest[each.member] is each]

    def _leave(self, listener: ListenerReply) -> None:
        """Remove a listener; without any listener the server's stream is closed."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)
        if not self._listeners and self._reading is not None:
            self._reading.cancel()
            self._reading = None
