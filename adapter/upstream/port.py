"""The relay's view of an upstream: a request goes out, a reply comes back piece by piece."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from adapter.errors import CallTooLong, UpstreamBroken, UpstreamSilent, UpstreamUnreachable
from adapter.rules.access.principals import NOBODY, Caller
from adapter.rules.access.sessions import Membership
from adapter.wire.envelope import Batch, Envelope

Headers = Sequence[tuple[str, str]]
"""Header fields in the order they came, names as they were spelled."""

Fields = Mapping[str, str]
"""Header fields by their name in lower case; of several of one name the first."""


def header(headers: Headers, name: str) -> str | None:
    """The first field called ``name`` (given in lower case), whatever its spelling, or None."""
    for field, value in headers:
        if field.lower() == name:
            return value
    return None


class Purpose(Enum):
    """The limit that a request counts against: none of the three uses up the connections of another."""

    CALL = "call"
    STREAM = "stream"
    """A stream that stays open, also while nothing is sent on it."""
    PING = "ping"
    """A look of the adapter's own at the server's health."""


CALL: Final = Purpose.CALL
STREAM: Final = Purpose.STREAM
PING: Final = Purpose.PING
"""The same under shorter names: in Python 3.11, to read a member of an Enum takes longer than a function call."""


def always() -> bool:
    """The answer of a request that changes nothing: it may be sent again."""
    return True


def never() -> bool:
    """The answer of a request that may have run: it is not sent again."""
    return False


# Not frozen: each call makes one, and a frozen one costs three times as much.
@dataclass(slots=True)
class UpstreamRequest:
    """One HTTP request to the MCP endpoint of an upstream. ``headers`` hold no Host and no framing field.

    ``query`` follows the one that the upstream's own URL has; it is valid as it is (``is_query``). ``repeatable``
    tells whether the request may be sent again after it was written and no byte of an answer came; it is called only
    then. ``caller`` and ``envelope`` are for upstreams in this process, and do not travel. ``envelope`` is the message
    of the client as it was read, and counts only if its body is this very ``body``. ``listens``: what the server says
    beside the answer reaches a client; a request of the adapter's own in a client's session has nobody for it.
    ``traceparent`` is the value of one more field, which no other request has; "" for none.
    """

    method: str
    headers: Headers
    body: bytes = b""
    caller: Caller = NOBODY
    query: str = ""
    repeatable: Callable[[], bool] = never
    purpose: Purpose = Purpose.CALL
    envelope: Envelope | Batch | None = None
    listens: bool = True
    traceparent: str = ""


class Share(NamedTuple):
    """The principal whose shared session is opened or joined. ``many``: several clients will speak in its part."""

    principal: str
    many: bool = False


@dataclass(slots=True)
class InitializeRequest(UpstreamRequest):
    """An ``initialize``. An upstream that can share sessions opens one for ``share``, with None one of its own."""

    share: Share | None = None


@dataclass(slots=True)
class MemberRequest(UpstreamRequest):
    """A request in a shared session that says by ``part`` whose it is, where no field does."""

    part: Membership | None = None


class UpstreamReply(Protocol):
    """One HTTP answer. Its receiver reads it to the end or aborts it; both are idempotent after the end."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers:
        """The fields of its head; SharedFields where that is the head of many answers."""

    @property
    def whole(self) -> bytes | None:
        """The body, if it had arrived completely by the time the head was handed out; else None."""

    @property
    def needs_request(self) -> bool:
        """True while the request's body is still held for it: a part waits to be sent, or the server has it."""

    async def read(self, read_timeout: float | None) -> bytes:
        """The next bytes as they came, ``b""`` once at the clean end and from then on.

        Raises UpstreamSilent after ``read_timeout`` seconds of waiting without a message or a part of one, whatever
        else came; UpstreamBroken when the body breaks off.
        """

    def abort(self) -> None:
        """Drop the connection unless the body was read to its end. Never raises, never waits."""


class WholeReply:
    """An UpstreamReply whose body is there from the beginning."""

    needs_request = False

    def __init__(self, status: int, headers: Headers = (), body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.whole: bytes | None = body
        self._unread = body
        self._aborted = False

    async def read(self, read_timeout: float | None) -> bytes:  # noqa: ARG002 (the port's: nothing here is waited for)
        """See UpstreamReply."""
        if self._aborted and self._unread:
            raise dropped()
        chunk, self._unread = self._unread, b""
        return chunk

    def abort(self) -> None:
        """See UpstreamReply."""
        self._aborted = True


class Sink(Protocol):
    """The receiver of an answer: the client's end of it."""

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """Take a chunk. False: it was the last for now; the next may come when ``drained`` has returned.

        ``more``: something follows at once, and what was put may wait for it.
        """

    async def drained(self) -> None:
        """Wait until it takes more. Raises where it never will."""


class WatchedSink:
    """A sink with somebody who looks at each chunk before it goes on."""

    __slots__ = ("_look", "_sink", "drained")

    def __init__(self, sink: Sink, look: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._look = look
        self.drained = sink.drained

    def put(self, chunk: bytes, *, more: bool = False) -> bool:
        """See Sink."""
        self._look(chunk)
        return self._sink.put(chunk, more=more)


class PouredReply(ABC):
    """An UpstreamReply that hands itself on."""

    __slots__ = ()

    @abstractmethod
    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See the function ``pour``; the caller sleeps while the sink takes what comes."""


def pour(reply: UpstreamReply, sink: Sink, read_timeout: float | None) -> Coroutine[Any, Any, None]:
    """Hand an answer on as it comes, to its clean end; a sink that is full slows the upstream down.

    It may be called instead of ``read`` at any time. Raises what ``read`` and the sink raise. The read timeout runs
    only while the sink takes what comes.
    """
    return (
        reply.pour(sink, read_timeout) if isinstance(reply, PouredReply) else _pour(reply, sink, read_timeout)
    )


async def _pour(reply: UpstreamReply, sink: Sink, read_timeout: float | None) -> None:
    while chunk := await reply.read(read_timeout):
        if not sink.put(chunk):
            await sink.drained()


class ReplyAround(PouredReply):
    """An UpstreamReply that is another one, ``reply``, but for what a subclass does differently."""

    __slots__ = ("_reply",)

    def __init__(self, reply: UpstreamReply) -> None:
        self._reply = reply

    @property
    def status(self) -> int:
        return self._reply.status

    @property
    def headers(self) -> Headers:
        return self._reply.headers

    @property
    def whole(self) -> bytes | None:
        return self._reply.whole

    @property
    def needs_request(self) -> bool:
        return self._reply.needs_request

    async def read(self, read_timeout: float | None) -> bytes:
        """See UpstreamReply."""
        return await self._reply.read(read_timeout)

    def abort(self) -> None:
        """See UpstreamReply."""
        self._reply.abort()

    async def pour(self, sink: Sink, read_timeout: float | None) -> None:
        """See PouredReply."""
        await pour(self._reply, sink, read_timeout)


class RewrittenReply(ReplyAround):
    """An UpstreamReply with other headers."""

    __slots__ = ("_headers",)

    def __init__(self, reply: UpstreamReply, headers: Headers) -> None:
        super().__init__(reply)
        self._headers = headers

    @property
    def headers(self) -> Headers:
        return self._headers


def challenge_of(reply: UpstreamReply) -> str | None:
    """The challenges of an answer, joined as one field (RFC 9110 §5.3); None without any."""
    return ", ".join(value for name, value in reply.headers if name.lower() == "www-authenticate") or None


class DownloadFailed(Exception):
    """``str(error)`` continues "The file cannot be fetched: " and names no address but the host of its URL."""


class Download(NamedTuple):
    """A file that is being fetched. ``length`` is in bytes as its server announced it, None if it did not."""

    length: int | None
    media_type: str
    chunks: AsyncIterator[bytes]


OpenDownload = Callable[[str], AbstractAsyncContextManager[Download]]
"""Begins to fetch the file at a URL, and lets go of it at the end. Raises DownloadFailed, also for each chunk."""


class Upstream(Protocol):
    async def send(self, request: UpstreamRequest, read_timeout: float | None) -> UpstreamReply:
        """Deliver one request and wait for the head of its answer.

        Raises UpstreamUnreachable (no connection; or a repeatable request got no byte of answer), UpstreamUnanswered
        (any other request got none), UpstreamBroken (what came is no HTTP), UpstreamSilent (``read_timeout`` seconds
        passed without the whole head), LimitReached (the limit of its purpose). If the caller is cancelled the
        connection is dropped.
        """

    async def close(self) -> None:
        """Drop every connection, idle or busy."""


class ConnectionUse(NamedTuple):
    """The connections of one server that are ``busy`` and ``idle``; how many were ``opened`` since the start, and how
    many exchanges were on one that was ``kept``.
    """

    busy: int
    idle: int
    opened: int
    kept: int


class ConnectionWatch(Protocol):
    """Tells of the connections to a server."""

    @property
    def use(self) -> ConnectionUse: ...

    def watch(self, waited: Callable[[float, bool], None]) -> None:
        """Tell of the seconds that each exchange waited for a connection, with True if it got one."""


class ProcessUse(NamedTuple):
    """``running`` processes of one server, also those that are being started or stopped, of at most ``most``."""

    running: int
    most: int


def unreachable(why: str) -> UpstreamUnreachable:
    """The failure of a request that got no byte of answer; ``why`` continues "cannot be reached: "."""
    return UpstreamUnreachable(f"The upstream server cannot be reached: {why}. Try again when it is back.")


class ReadLimit(float):
    """A read timeout in seconds that knows the ``setting`` which it comes from."""

    __slots__ = ("setting",)

    setting: str

    def __new__(cls, seconds: float, setting: str) -> ReadLimit:
        limit = super().__new__(cls, seconds)
        limit.setting = setting
        return limit


@asynccontextmanager
async def until(deadline: float, limit: ReadLimit) -> AsyncIterator[None]:
    """Raises CallTooLong when the ``deadline`` (the loop's time) of a call with that ``limit`` comes."""
    time = asyncio.timeout_at(deadline)
    try:
        async with time:
            yield
    except TimeoutError:
        # The system calls a client's lost connection so too.
        if not time.expired():
            raise
        raise CallTooLong(f"The call took longer than the {limit:g} s that {limit.setting} allows.") from None


def silent(read_timeout: float | None) -> UpstreamSilent:
    """The failure of a wait that ended after so many seconds without a message or a part of one."""
    allowed = f", the limit of {read_timeout.setting}" if isinstance(read_timeout, ReadLimit) else ""
    return UpstreamSilent(f"The upstream server sent no message for {read_timeout:g} s{allowed}.")


def dropped() -> UpstreamBroken:
    """The failure of an answer whose connection the adapter dropped."""
    return UpstreamBroken("The connection to the upstream server was dropped.")


def fields_of(headers: Headers) -> dict[str, str]:
    """The fields by their name; going backwards, the first of a name is the one that stays."""
    return {name.lower(): value for name, value in reversed(headers)}
