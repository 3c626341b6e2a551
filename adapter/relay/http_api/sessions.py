"""Adapter sessions of callers over HTTP: one for each principal and tab, opened when first needed.

Where several processes share the state, they share these sessions too: a caller meets another one with each request.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from adapter.errors import LimitReached, SessionMissing, SessionUnknown, UpstreamBroken
from adapter.relay.background import BackgroundTasks, in_turns
from adapter.relay.call.dispatch import CLOSE_SECONDS
from adapter.relay.exchange import Exchanges
from adapter.relay.http_api.caller_session import IDLE, SWEPT, TOLD, CallerKey, CallerSession, SessionRows
from adapter.relay.http_api.callers import KeptSession, ToolRefused, Who
from adapter.relay.http_api.conversation import LISTS, Conversation, Tell
from adapter.relay.http_api.dialogue import Dialogue, Hear, ReplyAddress
from adapter.relay.param_headers import mirrored
from adapter.relay.server import Server
from adapter.relay.tools.catalogue_reader import LONGEST_LIST, PAGES
from adapter.rules.access.principals import party_of
from adapter.rules.access.sessions import session_key
from adapter.rules.tools.lists import MOST_ITEMS, LongList
from adapter.wire.envelope import METHOD_NOT_FOUND, dump
from adapter.wire.eras import Era
from adapter.wire.piecewise import Piecewise

__all__ = ("HttpSessions", "Tell", "ToolRefused", "Who")

KNOWN_FOR = 5.0
"""Seconds for which a tool that was listed is taken to be as it was; a name that is not known is asked for at once."""

NOT_CONTINUED: Mapping[str, Any] = {}
"""The answers of a call that has asked nothing yet."""

T = TypeVar("T")


class SessionBounds(NamedTuple):
    """The seconds after which a session that nobody used is closed, and the number of sessions of one server that are
    open at once: the one used longest ago makes room for another. ``streams`` of them have a stream open between calls.
    """

    idle: float = IDLE
    most: int = 1000
    streams: int = 1000


BOUNDS = SessionBounds()


@dataclass(eq=False, slots=True)
class HttpSessions:
    """The requests of callers over HTTP to ``server``, each caller in an adapter session of its own.

    ``era`` tells which era the server was last found to speak, if somebody watches it. ``clock`` is in seconds;
    ``background`` does the work that nobody waits for. ``rows`` tell of the sessions that other processes have opened;
    None where there is no other.
    """

    relay: Exchanges
    server: Server
    background: BackgroundTasks
    clock: Callable[[], float]
    era: Callable[[], Era | None] = field(default=lambda: None, kw_only=True)
    rows: SessionRows | None = field(default=None, kw_only=True)
    bounds: SessionBounds = field(default=BOUNDS, kw_only=True)
    _found: Era | None = field(default=None, init=False)
    _sessions: OrderedDict[CallerKey, CallerSession] = field(default_factory=OrderedDict, init=False)

    def __repr__(self) -> str:
        return f"<HttpSessions of {self.server.id!r}: {len(self._sessions)}>"

    # --- what can be asked ------------------------------------------------------------------------------------

    async def tools(self, who: Who) -> Sequence[dict[str, Any]]:
        """The definitions of all tools on all pages, as this caller may see them; none of a server without tools.

        Raises AdapterError, ToolRefused.
        """

        async def listing(session: CallerSession) -> Sequence[dict[str, Any]]:
            found = await _all(session.conversation, who, "tools/list")
            session.tools, session.places = found, await in_turns(_places(found))
            session.listed = self.clock()
            access = self.server.stages.access
            session.rights = None if access is None else access.rights_of(who.caller)
            return found

        return await self._using(who, listing)

    async def tool(self, who: Who, name: str) -> dict[str, Any] | None:
        """The definition of one tool, None if this caller sees none of that name. Raises as ``tools``."""
        session = self._sessions.get(self._key_of(who))
        access = self.server.stages.access
        if (
            session is None
            or self.clock() - session.listed >= KNOWN_FOR
            or name not in session.places
            or (access is not None and session.rights != access.rights_of(who.caller))
        ):
            await self.tools(who)
            session = self._sessions.get(self._key_of(who))
        return session.known(name) if session is not None else None

    async def call(
        self,
        who: Who,
        name: str,
        arguments: Mapping[str, Any],
        progress: Tell | None = None,
        continued: Mapping[str, Any] = NOT_CONTINUED,
    ) -> dict[str, Any]:
        """The result of a call. ``progress`` is told how far it is, where the tool says so; a Dialogue also hears what
        the server asks. ``continued`` has the answers of a modern call that goes on: ``inputResponses`` and
        ``requestState``.

        Cancelling the wait cancels the call. Raises ToolRefused for a JSON-RPC error, InputRequired for questions of a
        modern server, AdapterError, and what ``progress`` raises.
        """

        async def calling(session: CallerSession) -> dict[str, Any]:
            params = {"name": name, "arguments": dict(arguments), **continued}
            ask = partial(session.conversation.ask, who, "tools/call", params, tell=progress)
            if session.conversation.era is Era.MODERN:
                definition = session.known(name) or await self.tool(who, name) or {}
                return await ask(mirrors=mirrored(definition.get("inputSchema"), dict(arguments)))
            if isinstance(progress, Dialogue):
                # Some servers ask on the stream of the session, and not on that of the call.
                async with session.listening.heard(who, progress.hear, answers=True):
                    return await ask()
            if self._may_keep_stream(session):
                # A tool that asks there would wait until its time is over.
                await session.listening.keep(who)
            return await ask()

        return await self._using(who, calling)

    async def request(self, who: Who, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request about prompts and resources. Raises ToolRefused, InputRequired, AdapterError."""
        return await self._using(who, lambda session: session.conversation.ask(who, method, dict(params)))

    async def listed(self, who: Who, method: str) -> Sequence[dict[str, Any]]:
        """All pages of the list of that method (see LISTS). Raises as ``tools``."""
        return await self._using(who, lambda session: _all(session.conversation, who, method))

    async def answer(self, who: Who, address: ReplyAddress, result: Mapping[str, Any]) -> None:
        """Answer a question. The session is the one that it names, if it is this caller's. Raises AdapterError."""
        # Not in the caller's own session here: the question may have come through another process of the adapter.
        asked = self._in(KeptSession(who.principal, address.session, address.version))
        await asked.answer(who, address.number, result)

    async def listen(self, who: Who, hear: Hear) -> None:
        """Have ``hear`` take what the server says outside of answers, until it ends that.

        Raises AdapterError where no session can be opened.
        """

        async def listening(session: CallerSession) -> None:
            async with session.listening.heard(who, hear):
                await session.listening.ended()

        await self._using(who, listening)

    async def read_resource(self, who: Who, uri: str) -> list[dict[str, Any]]:
        """The contents of a resource, each with ``text`` or ``blob``. Raises as ``tools``."""
        result = await self.request(who, "resources/read", {"uri": uri})
        contents = result.get("contents")
        if not isinstance(contents, list) or not all(isinstance(each, dict) for each in contents):
            raise UpstreamBroken("The upstream server answered with something that is not a resource.")
        return contents

    async def key_of(self, who: Who) -> str | None:
        """The key of the adapter session that this caller has open; None without one, and in the modern era.

        Raises StoreUnavailable.
        """
        key = self._key_of(who)
        session = self._sessions.get(key)
        if session is not None:
            kept = session.conversation.session
        else:
            kept = None if self.rows is None else await self.rows.find(key)
        return None if kept is None else session_key(kept.id)

    # --- holding ----------------------------------------------------------------------------------------------

    async def _using(self, who: Who, act: Callable[[CallerSession], Awaitable[T]]) -> T:
        """Act in the caller's session; one that is not known any more is opened again, once."""
        try:
            return await self._in_session(who, act)
        except (SessionMissing, SessionUnknown):
            return await self._in_session(who, act)

    async def _in_session(self, who: Who, act: Callable[[CallerSession], Awaitable[T]]) -> T:
        key = self._key_of(who)
        session = self._take(key)
        session.busy += 1
        try:
            await self._open(session, who)
            return await act(session)
        except (SessionMissing, SessionUnknown):
            self._forget(key, session)
            await session.forget()
            raise
        except UpstreamBroken:
            # Perhaps it speaks another era by now. A session stays, for there are files in it.
            if session.conversation.era is Era.MODERN:
                self._found = None
                self._forget(key, session)
            raise
        finally:
            session.busy -= 1
            session.used = self.clock()
            if not session.is_ready and not session.busy:
                self._forget(key, session)
            # A shared one that is forgotten here may go on elsewhere, and ends when it is due.
            if not session.busy and self._sessions.get(key) is not session and not session.is_shared:
                self.background.run(session.conversation.close())

    def _key_of(self, who: Who) -> CallerKey:
        party = party_of(who.caller) if self.server.apart else who.principal
        return CallerKey(who.principal, who.tab, party, who.answers)

    async def _open(self, session: CallerSession, who: Who) -> None:
        """Have the session be open. One that another process kept first is used in place of its own."""
        if not session.is_ready:
            surplus = await session.open(who)
            self._found = session.conversation.era
            if surplus is not None:
                self.background.run(self._end(surplus))
        await session.tell_use()

    async def _end(self, kept: KeptSession) -> None:
        """End a session that no caller has any more."""
        await self._in(kept).close()

    def _in(self, kept: KeptSession) -> Conversation:
        """A conversation in a session that is open."""
        conversation = Conversation(self.relay, self.server, Era.LEGACY, self.background)
        conversation.adopt(kept)
        return conversation

    def _take(self, key: CallerKey) -> CallerSession:
        session = self._sessions.get(key)
        if session is not None and self._may_be_over(session):
            self._forget(key, session)
            self.background.run(session.leave())
            session = None
        if session is None:
            self._make_room()
            era = self.era() or self._found
            conversation = Conversation(
                self.relay,
                self.server,
                era,
                self.background,
                answers=key.answers,
                first_id=1 if self.rows is None else _first_id(),
            )
            session = CallerSession(key, conversation, self.clock, self.rows, self.bounds.idle * TOLD)
            self._sessions[key] = session
        self._sessions.move_to_end(key)
        return session

    def _may_be_over(self, session: CallerSession) -> bool:
        """Tell whether another process may be ending a session, because it was not used here for so long."""
        return session.is_shared and not session.busy and self.clock() - session.used >= self.bounds.idle

    def _may_keep_stream(self, session: CallerSession) -> bool:
        """Tell whether there is a stream for this session: MCP clients need some of those that the server allows."""
        kept = (each.listening.is_kept for each in self._sessions.values())
        return session.listening.is_kept or sum(kept) < self.bounds.streams

    def _make_room(self) -> None:
        """Close the session used longest ago where there are too many. Raises LimitReached if all are in use."""
        if len(self._sessions) < self.bounds.most:
            return
        resting = next(((key, session) for key, session in self._sessions.items() if not session.busy), None)
        if resting is None:
            raise LimitReached(
                f"{self.bounds.most} callers over HTTP are connected, and no more are allowed; try again shortly.",
                retry_after=1,
            )
        key, session = resting
        self._forget(key, session)
        self.background.run(session.give_up())

    def _forget(self, key: CallerKey, session: CallerSession) -> None:
        """Let the next request begin anew; who uses the session last closes it."""
        session.listening.let_go()
        if self._sessions.get(key) is session:
            del self._sessions[key]

    async def tidy(self) -> None:
        """Close the sessions that have been idle. Raises StoreUnavailable."""
        since = self.clock() - self.bounds.idle
        idle = [(key, each) for key, each in self._sessions.items() if not each.busy and each.used <= since]
        for key, session in idle:
            self._forget(key, session)
        await _close(session for _, session in idle)
        if self.rows is not None:
            for _, session in idle:
                self.background.run(session.leave())
            await asyncio.gather(*(each.tell_use() for each in self._sessions.values() if each.busy))
            await self._end_overdue(self.rows)

    async def _end_overdue(self, rows: SessionRows) -> None:
        """End what no process has used for too long, a few at once. Raises StoreUnavailable."""
        found: list[KeptSession] = []
        try:
            async for kept in rows.overdue():
                found.append(kept)
                if len(found) == SWEPT:
                    ending, found = found, []
                    await asyncio.gather(*map(self._end, ending))
        finally:
            # Also where the store fails in the middle: no other process finds these any more.
            await asyncio.gather(*map(self._end, found))

    async def close(self, within: float) -> None:
        """Close the sessions of this process alone, upstream as far as that takes no longer than ``within`` seconds."""
        sessions, self._sessions = self._sessions, OrderedDict()
        for session in sessions.values():
            session.listening.let_go()
        await _close(sessions.values(), within)


async def _close(sessions: Iterable[CallerSession], within: float = CLOSE_SECONDS) -> None:
    """Close sessions but for those that other processes may go on in, which end when they are due."""
    alone = [session for session in sessions if not session.is_shared]
    await asyncio.gather(*(each.conversation.close(within) for each in alone))


def _first_id() -> int:
    """The number from which a process counts its requests in sessions that are not its alone: no two requests of one
    session may have the same id (MCP 2025-11-25, "Requests").
    """
    return secrets.randbits(32) << 20


async def _all(conversation: Conversation, who: Who, method: str) -> Sequence[dict[str, Any]]:
    """A list to its last page. Raises ToolRefused, AdapterError."""
    pages: list[Sequence[dict[str, Any]]] = []
    params: dict[str, Any] = {}
    count = size = 0
    while len(pages) < PAGES and count <= MOST_ITEMS and size <= LONGEST_LIST:
        try:
            result = await conversation.ask(who, method, params)
        except ToolRefused as refused:
            if refused.code == METHOD_NOT_FOUND and not params:
                return []
            raise
        page, cursor = result.get(LISTS[method]), result.get("nextCursor")
        if isinstance(page, list):
            page = [each for each in page if isinstance(each, dict)]
        elif not isinstance(page, LongList):
            raise UpstreamBroken(f"The upstream server answered {method} with something that is not a list.")
        pages.append(page)
        if not isinstance(cursor, str):
            break
        count, size = count + len(page), size + (page.size if isinstance(page, LongList) else len(dump(page)))
        params = {"cursor": cursor}
    return LongList.joined(pages) if len(pages) > 1 else pages[0]


def _places(tools: Sequence[dict[str, Any]]) -> Piecewise[dict[str, int]]:
    """The position of the tool of each name; if several have one name, of the last."""
    found: dict[str, int] = {}
    for place in range(len(tools)):
        name = tools[place].get("name")
        if isinstance(name, str):
            found[name] = place
        yield None
    return found
