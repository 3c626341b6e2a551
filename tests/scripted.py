"""An Upstream that plays a transcript and refuses any request that is not in it.."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.errors import UpstreamBroken, UpstreamSilent
from adapter.upstream.port import Headers, UpstreamReply, UpstreamRequest, header


@dataclass(frozen=True, slots=True)
class Expect:
    """A request to come. ``body`` is the exact bytes or a question about them; None takes any.

    ``headers`` (names in lower case) have to be there with these values, None meaning absent.
    """

    method: str
    body: bytes | Callable[[bytes], bool] | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)

    def fits(self, request: UpstreamRequest) -> bool:
        if request.method != self.method:
            return False
        if any(header(request.headers, name) != value for name, value in self.headers.items()):
            return False
        if callable(self.body):
            return self.body(request.body)
        return self.body is None or request.body == self.body


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """An answer to play. Each chunk is one read; an event holds the body back until set, an exception ends it.

    One chunk or none is ``whole`` with its head. ``after`` holds back the head.
    """

    status: int = 200
    headers: Headers = (("Content-Type", "application/json"),)
    chunks: Sequence[bytes | Exception | asyncio.Event] = ()
    after: asyncio.Event | None = None


Step = tuple[Expect, ScriptedAnswer | Exception]
"""A request and what it is answered with; an exception is raised by ``send``."""


class ScriptedReply:
    """The UpstreamReply that plays an Answer; ``aborted`` says whether its reader gave up before the end."""

    needs_request = False

    def __init__(self, answer: ScriptedAnswer) -> None:
        self.status = answer.status
        self.headers: Headers = list(answer.headers)
        self.aborted = False
        self._chunks = list(answer.chunks)
        self._dropped = asyncio.Event()
        self.whole = _whole(self._chunks)

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        while self._chunks and not self.aborted:
            chunk = self._chunks[0]
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, asyncio.Event):
                await _first_of(chunk, self._dropped, read_timeout)
                if not chunk.is_set():
                    continue
            self._chunks.pop(0)
            if isinstance(chunk, bytes) and chunk:
                return chunk
        if self.aborted:
            raise UpstreamBroken("The connection to the upstream server was dropped.")
        return b""

    def abort(self) -> None:
        """See UpstreamReply."""
        if self._chunks and self.whole is None:
            self.aborted = True
            self._dropped.set()


class ScriptedUpstream:
    """Plays ``steps``: a request takes the first step not yet played that it fits.

    So a transcript fixes the order of equal requests and leaves concurrent ones, such as a GET stream beside
    calls, their freedom; ``requests`` and ``replies`` hold what happened, in order.
    """

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self._steps = list(steps)
        self.requests: list[UpstreamRequest] = []
        self.replies: list[ScriptedReply] = []
        self.closed = False

    def __repr__(self) -> str:
        return f"<ScriptedUpstream: {len(self.requests)} requests seen, {len(self._steps)} steps to come>"

    @property
    def unplayed(self) -> list[Expect]:
        """The requests that were expected and have not come; a test ends by comparing them with ``[]``."""
        return [expect for expect, _ in self._steps]

    def then(self, expect: Expect, answer: ScriptedAnswer | Exception) -> None:
        """Write one more step into the transcript while it is played."""
        self._steps.append((expect, answer))

    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """See Upstream. Raises AssertionError for a request that is not in the transcript."""
        self.requests.append(request)
        answer = self._take_step(request)
        if isinstance(answer, Exception):
            raise answer
        if answer.after is not None:
            await _first_of(answer.after, answer.after, read_timeout)
        reply = ScriptedReply(answer)
        self.replies.append(reply)
        return reply

    async def close(self) -> None:
        """See Upstream."""
        self.closed = True
        for reply in self.replies:
            reply.abort()

    def _take_step(self, request: UpstreamRequest) -> ScriptedAnswer | Exception:
        for index, (expect, answer) in enumerate(self._steps):
            if expect.fits(request):
                del self._steps[index]
                return answer
        raise AssertionError(f"Not in the transcript: {request}. Still expected: {self.unplayed}")


def _whole(chunks: Sequence[bytes | Exception | asyncio.Event]) -> bytes | None:
    if not chunks:
        return b""
    only = chunks[0]
    return only if len(chunks) == 1 and isinstance(only, bytes) else None


async def _first_of(one: asyncio.Event, other: asyncio.Event, read_timeout: float | None) -> None:
    """Wait until either is set. Raises UpstreamSilent after ``read_timeout`` seconds."""
    waits = [asyncio.create_task(event.wait()) for event in {one, other}]
    try:
        done, _ = await asyncio.wait(waits, timeout=read_timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if not done:
        raise UpstreamSilent(f"The upstream server sent nothing for {read_timeout:g} s.")
