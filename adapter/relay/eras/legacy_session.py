"""One session at a legacy server for clients that have none, and what the server says in it to nobody's request."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError, BadJson
from adapter.relay.background import settle
from adapter.relay.replies import events_of, messages_in
from adapter.relay.sessions.inner_client import InnerClient, rpc_request
from adapter.rules.access.sessions import Membership, membership
from adapter.rules.eras.legacy_server import LEVELS, SUBSCRIBED
from adapter.rules.eras.questions import LegacyQuestion, declined, question_in
from adapter.upstream.port import STREAM, UpstreamRequest
from adapter.wire.envelope import dump, parse
from adapter.wire.shared_ids import CANCELLED, PROGRESS, named
from adapter.wire.sse import SseReader

LISTEN_SECONDS = 2.0
"""Seconds that a request waits until the server's own stream is open, on which it may be asked something."""

LARGEST = 4 << 20
"""Bytes of a message of the server's that is read, which is no response."""

_MEMBERS = (1 << 64) - 1

LOG = "notifications/message"

OnHeard = Callable[[str | None], Awaitable[None]]
"""Is called when the own stream of the session of that id begins to be heard."""


class Exchange:
    """A request or subscription that is under way in a session. What belongs to none is told to all, or asked in the
    only one that it can be of.
    """

    is_call = False
    waits = False
    """Its client was asked, and has to come back: its server waits as well."""

    async def ask(self, question: LegacyQuestion, params: object) -> None:
        """Ask a call's client, or decline in its name where it cannot be asked. Raises what the upstream raises."""

    async def tell(self, message: Mapping[str, Any], data: bytes) -> None:
        """Tell the client of a notification."""

    def withdraw(self, id_bytes: bytes) -> None:
        """Forget a question that the server gave up."""

    def lost(self) -> None:
        """Learn that the server is not heard outside of requests any more."""

    def stop(self) -> None:
        """End: the adapter stops, or serves this server no more."""


def said_in(data: bytes) -> tuple[str, dict[str, Any]] | None:
    """The method and the whole of a request or notification of a server; None for anything else, and for what is too
    large to be read.
    """
    try:
        message = parse(data) if len(data) <= LARGEST else None
    except BadJson:
        return None
    if not isinstance(message, dict) or not isinstance(method := message.get("method"), str):
        return None
    return method, message


@dataclass(eq=False)
class LegacySession:
    """One session at the server, of a ``party`` of callers. ``result`` is that of its ``initialize``.

    Unless it ``lasts`` it is that of one call.
    """

    client: InnerClient
    result: dict[str, Any]
    log: FilteringBoundLogger
    party: str
    lasts: bool
    others: Callable[[], list[Exchange]]
    """Those beside calls, of the same party in all sessions: a change that is told in one call is one for them all."""
    on_heard: OnHeard
    under_way: set[Exchange] = field(default_factory=set, init=False)
    uris: Counter[str] = field(default_factory=Counter, init=False)
    level: int = field(default=len(LEVELS), init=False)
    hears: bool = field(default=False, init=False)
    over: bool = field(default=False, init=False)
    server_info: bytes | None = field(init=False)
    _ear: asyncio.Task[None] | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        info = self.result.get("serverInfo")
        self.server_info = dump(info) if isinstance(info, dict) else None
        self._part = membership(self.client.session.id)
        # A member's own: other processes count on from other numbers.
        self._first = secrets.randbits(64)

    @property
    def capabilities(self) -> dict[str, Any]:
        declared = self.result.get("capabilities")
        return declared if isinstance(declared, dict) else {}

    @property
    def calls(self) -> list[Exchange]:
        return [each for each in self.under_way if each.is_call]

    @property
    def asking(self) -> Exchange | None:
        """The call that a question belongs to which does not say so; None where it may be any of several, or none is.

        A server that waits for an answer in one call goes on in the others, so those that wait count where no other is.
        """
        calls = self.calls
        running = [each for each in calls if not each.waits] or calls
        return running[0] if len(running) == 1 else None

    def speaking(self, like: UpstreamRequest, read_timeout: float | None) -> InnerClient:
        """A client for one more request in the session, with the credentials of ``like``."""
        client, part = self.client, self._part
        if part is not None:
            self._count += 1
            part = Membership(part.key, part.secret, f"{self._first + self._count & _MEMBERS:016x}")
        return InnerClient(client.upstream, like, client.session, read_timeout, client.limit, part)

    async def listen(self, *, anew: bool = False) -> None:
        """Hear what the server says outside of requests, if it has a stream for that. ``anew``: also where it was
        refused before.
        """
        if self._ear is None or (anew and self._ear.done()):
            opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._ear = asyncio.get_running_loop().create_task(self._hear(opened))
            self._ear.add_done_callback(partial(settle, opened))
            await asyncio.wait((opened,), timeout=LISTEN_SECONDS)

    async def _hear(self, opened: asyncio.Future[None]) -> None:
        client = self.client._replace(like=replace(self.client.like, purpose=STREAM))
        try:
            reply = await client.stream()
            if reply is None:
                return
            self.hears = True
            await self.on_heard(client.session.id)
            settle(opened)
            async for event in events_of(reply, SseReader(client.limit), None):
                for data in messages_in(event.data) if event.data else ():
                    await self._take(data)
        except AdapterError as error:
            self.log.debug("a server's own stream ended", why=str(error))
        finally:
            if self.hears:
                # Another request opens it again; a server that refuses it is not asked again in this session.
                self.hears, self._ear = False, None
                for each in list(self.under_way):
                    each.lost()

    async def _take(self, data: bytes) -> None:
        if (said := said_in(data)) is None:
            return
        method, message = said
        if message.get("id") is not None:
            question = question_in(data, method)
            if (call := self.asking) is not None:
                with contextlib.suppress(AdapterError):  # which ends the call, and not what others hear
                    await call.ask(question, message.get("params"))
            else:
                if method != "ping":
                    count = len(self.calls)
                    self.log.warning("a question to nobody was declined", method=method, calls=count)
                await self._post(declined(question), None)
        elif method == CANCELLED:
            number = dump(named(message, "requestId"))
            for each in self.calls:
                each.withdraw(number)
        elif method in SUBSCRIBED or method in (LOG, PROGRESS):
            for each in self.others() if method in SUBSCRIBED else list(self.under_way):
                await each.tell(message, data)

    async def _ask(self, number: str, method: str, params: Mapping[str, Any]) -> None:
        """Send a request, and wait for the response to it, or until the server fails."""
        await self._post(dump(rpc_request(number, method, params)), number)

    async def _post(self, body: bytes, number: str | None) -> None:
        speaker = self.speaking(self.client.like, self.client.read_timeout)
        with contextlib.suppress(AdapterError):
            reply = await speaker.post(body)
            if reply.status == 200:
                await speaker.answer(reply, number, keeps_raw=False)
            else:
                reply.abort()

    async def log_at_least(self, level: int) -> None:
        """Have the server send log messages of this level: the most detailed that anybody in the session wants."""
        if level < self.level and "logging" in self.capabilities:
            self.level = level
            await self._ask("level", "logging/setLevel", {"level": LEVELS[level]})

    async def subscribe(self, uri: str) -> None:
        """Have the server tell of changes of a resource, once for all who want it."""
        self.uris[uri] += 1
        if self.uris[uri] == 1:
            await self._ask("subscribe", "resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uris: list[str]) -> None:
        """End that, where nobody is left who wants it."""
        for uri in uris:
            self.uris[uri] -= 1
            if self.uris[uri] <= 0:
                del self.uris[uri]
                if not self.over:
                    await self._ask("unsubscribe", "resources/unsubscribe", {"uri": uri})

    def stop(self) -> None:
        """Listen no more."""
        self.over = True
        if self._ear is not None:
            self._ear.cancel()
