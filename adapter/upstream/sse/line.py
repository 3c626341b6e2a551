"""The line from a server to one session: its stream, read to its end and opened again while the server goes on."""

from __future__ import annotations

import asyncio
import itertools
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, SessionUnknown, UpstreamBroken, UpstreamUnreachable
from adapter.upstream.http import HttpUpstream
from adapter.upstream.port import Headers, UpstreamRequest
from adapter.upstream.sse.stream import (
    ENDPOINT,
    MESSAGE,
    SseAddress,
    SseStream,
    StreamRefusedError,
    open_stream,
    target_of,
)
from adapter.wire.sse import SseEvent

ATTEMPTS = 3
"""Attempts to open a stream again whose server cannot be reached."""

LONGEST_RETRY = 10.0
"""Seconds of a server's ``retry:`` that are waited at most."""

SHORT_LIVED = 5.0
"""Seconds; so many streams in a row as there are attempts, each shorter than this, end the session."""

BURST = 64
"""Events that are taken before others get a turn: a flood of small ones comes in large pieces."""


class LineOwner(Protocol):
    """The session that a line belongs to."""

    def receive(self, data: bytes) -> None:
        """Take the data of a message event."""

    def overflowed(self) -> None:
        """Note that an event was above the limit: it may have been the answer to any request."""

    def interrupted(self, error: AdapterError) -> None:
        """Note that answers to what was sent may be lost, while the session may go on."""

    def lost(self, error: AdapterError) -> None:
        """Note that the line is over, and the session with it. ``error`` is for what was sent."""


class SseLine:
    """Opens and reads the streams of one session, each in place of the one before."""

    def __init__(self, address: SseAddress, log: FilteringBoundLogger, owner: LineOwner) -> None:
        self._address = address
        self._log = log
        self._owner = owner
        self.headers: Headers = ()
        """The fields of the client's latest request: the next stream is asked for with them, and the first's query."""
        self._query = ""
        self._stream: SseStream | None = None
        self._endpoint: asyncio.Future[HttpUpstream] = asyncio.get_running_loop().create_future()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._reading: asyncio.Task[None] | None = None

    async def open(self, request: UpstreamRequest) -> None:
        """Open the first stream, for this request. Raises what ``open_stream`` raises."""
        self.headers, self._query = request.headers, request.query
        stream = await open_stream(self._address, self.headers, self._query)
        self._follow(stream)
        self._reading = asyncio.create_task(self._run(stream))

    async def endpoint(self) -> HttpUpstream:
        """The endpoint for messages, as soon as a stream is open. Raises SessionUnknown where none will be."""
        return await asyncio.shield(self._endpoint)

    def pause(self) -> None:
        """Read no further event until ``resume`` is called."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read on."""
        self._may_read.set()

    def close(self) -> None:
        """Drop the stream, which ends the session at the server."""
        if self._stream is not None:
            self._stream.close()
        if not self._endpoint.done():
            self._endpoint.set_exception(SessionUnknown())
            # Nobody may have waited for it.
            self._endpoint.exception()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()

    async def closed(self) -> None:
        """Wait until nothing of a closed line runs any more."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    def _follow(self, stream: SseStream) -> None:
        self._stream = stream
        self._endpoint.set_result(self._address.http.toward(stream.target))

    # --- reading --------------------------------------------------------------------------------------------------

    async def _run(self, stream: SseStream) -> None:
        """Read the stream, and those that are opened in its place, until there is no other."""
        short = 0
        lost: AdapterError = UpstreamBroken()
        again: SseStream | None = stream
        try:
            while again is not None:
                stream = again
                lost = await self._read(stream)
                stream.close()
                lived = asyncio.get_running_loop().time() - stream.opened_at
                short = short + 1 if lived < SHORT_LIVED else 0
                again = await self._reconnected(stream, lost) if short < ATTEMPTS else None
        finally:
            self._owner.lost(lost)

    async def _read(self, stream: SseStream) -> UpstreamBroken:
        """Take what comes, to the end of the stream; the failure of what was under way then."""
        try:
            for taken in itertools.count(1):
                if (event := await stream.next()) is None:
                    break
                self._take(event, stream)
                await self._may_read.wait()
                if taken % BURST == 0:
                    await asyncio.sleep(0)
        except UpstreamBroken as error:
            return error
        return UpstreamBroken("The upstream server ended its event stream; the call may have run.")

    def _take(self, event: SseEvent, stream: SseStream) -> None:
        if event.skipped:
            self._owner.overflowed()
        elif event.event == ENDPOINT and event.data is not None:
            # Without it the stream is not opened again.
            named, stream.target = stream.target, ""
            if target_of(event.data, self._address) != named:
                raise UpstreamBroken("The upstream server named a second endpoint; the call may have run.")
            stream.target = named
        elif event.event == MESSAGE and event.data:
            self._owner.receive(event.data)

    # --- reconnecting ---------------------------------------------------------------------------------------------

    async def _reconnected(self, before: SseStream, lost: AdapterError) -> SseStream | None:
        """Open the stream again; None where the server does not go on with the session.

        It does where it names the same endpoint. A server that numbers its events sends again what was missed, so that
        calls wait for it; without numbers an answer may be lost, so each call is told now.
        """
        if not before.target:
            return None
        self._endpoint = asyncio.get_running_loop().create_future()
        if not before.last_id:
            self._owner.interrupted(lost)
        stream = await self._opened_again(before)
        if stream is None:
            return None
        if stream.target != before.target:
            stream.close()
            return None
        self._log.info("an event stream of an upstream was opened again")
        self._follow(stream)
        return stream

    async def _opened_again(self, before: SseStream) -> SseStream | None:
        least = self._address.delay
        delay = least if before.retry is None else min(before.retry / 1000, LONGEST_RETRY)
        for _ in range(ATTEMPTS):
            await asyncio.sleep(max(delay, least))
            try:
                return await open_stream(self._address, self.headers, self._query, before.last_id)
            except UpstreamUnreachable:
                delay = 2 * delay
            except (AdapterError, StreamRefusedError):
                return None
        return None
