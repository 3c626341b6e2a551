"""Adapter sessions of callers over HTTP: one for each principal and tab, opened when first needed.

They are sessions like those of MCP clients, which the cleanup ends when nobody uses them. Where several processes share
the state, all of them go on in the same, which they find by ``session_rows``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from adapter.errors import AdapterError, LimitReached, SessionMissing, SessionUnknown, UpstreamBroken
from adapter.relay.background import BackgroundTasks, in_turns
from adapter.relay.exchange import Exchanges
from adapter.relay.http_api.callers import KeptSession, ToolRefused, Who
from adapter.relay.http_api.conversation import LISTS, Conversation, Tell
from adapter.relay.http_api.dialogue import Dialogue, Hear, ReplyAddress
from adapter.relay.http_api.session_rows import SOON, CallerKey, SealedStore, SessionRows
from adapter.relay.param_headers import mirrored
from adapter.relay.server import Server
from adapter.relay.sessions.session_map import Sessions
from adapter.relay.tools.catalogue_reader import LONGEST_LIST, PAGES
from adapter.rules.access.principals import party_of
from adapter.rules.access.sessions import session_key
from adapter.rules.tools.lists import MOST_ITEMS, LongList
from adapter.wire.envelope import METHOD_NOT_FOUND, dump
from adapter.wire.eras import Era
from adapter.wire.piecewise import Piecewise

__all__ = ("HttpSessions", "Tell", "ToolRefused", "Who")

IDLE = 600.0
"""Seconds after which a session that nobody used is closed."""

KNOWN_FOR = 5.0
"""Seconds for which a tool that was listed is taken to be as it was; a name that is not known is asked for at once."""

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

    ``sessions`` is the session map. ``era`` tells which era the server was last found to speak, if somebody watches it.
    ``background`` does the work that nobody waits for. ``rows`` lead to the sessions that other processes have opened;
    None where there is no other.
    """

    relay: Exchanges
    sessions: Sessions
    server: Server
    background: BackgroundTasks
    era: Callable[[], Era | None] = field(default=lambda: None, kw_only=True)
    rows: InitVar[SealedStore | None] = field(default=None, kw_only=True)
    bounds: SessionBounds = field(default=BOUNDS, kw_only=True)
    _rows: SessionRows | None = field(default=None, init=False)
    _found: Era | None = field(default=None, init=False)
    _sessions: OrderedDict[CallerKey, Conversation] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self, rows: SealedStore | None) -> None:
        if rows is not None:
            self._rows = SessionRows(rows, self.sessions, self.server, self.bounds.idle)

    def __repr__(self) -> str:
        return f"<HttpSessions of {self.server.id!r}: {len(self._sessions)}>"

    # --- what can be asked ------------------------------------------------------------------------------------

    async def tools(self, who: Who) -> Sequence[dict[str, Any]]:
        """The definitions of all tools on all pages, as this caller may see them; none of a server without tools.

        Raises AdapterError, ToolRefused.
        """

        async def listing(session: Conversation) -> Sequence[dict[str, Any]]:
            found = await _all(session, who, "tools/list")
            session.tools, session.places = found, await in_turns(_places(found))
            session.listed = self.sessions.clock()
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
            or self.sessions.clock() - session.listed >= KNOWN_FOR
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
        continued: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of a call. ``progress`` is told how far it is, where the tool says so; a Dialogue also hears what
        the server asks. ``continued`` has the answers of a modern call that goes on: ``inputResponses`` and
        ``requestState``.

        Cancelling the wait cancels the call. Raises ToolRefused for a JSON-RPC error, InputRequired for questions of a
        modern server, AdapterError, and what ``progress`` raises.
        """

        async def calling(session: Conversation) -> dict[str, Any]:
            params = {"name": name, "arguments": dict(arguments), **(continued or {})}
            ask = partial(session.ask, who, "tools/call", params, tell=progress)
            if session.era is Era.MODERN:
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
        return await self._using(who, lambda session: session.ask(who, method, dict(params)))

    async def listed(self, who: Who, method: str) -> Sequence[dict[str, Any]]:
        """All pages of the list of that method (see LISTS). Raises as ``tools``."""
        return await self._using(who, lambda session: _all(session, who, method))

    async def answer(self, who: Who, address: ReplyAddress, result: Mapping[str, Any]) -> None:
        """Answer a question. The session is the one that it names, if it is this caller's. Raises AdapterError."""
        # Not in the caller's own session here: the question may have come through another process of the adapter.
        asked = self._in(KeptSession(who.principal, address.session, address.version))
        await asked.answer(who, address.number, result)

    async def listen(self, who: Who, hear: Hear) -> None:
        """Have ``hear`` take what the server says outside of answers, until it ends that.

        Raises AdapterError where no session can be opened.
        """

        async def listening(session: Conversation) -> None:
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
        kept = None if session is None else session.session
        if session is None and self._rows is not None:
            _, kept = await self._rows.find(key)
        return None if kept is None else session_key(kept.id)

    # --- holding ----------------------------------------------------------------------------------------------

    async def _using(self, who: Who, act: Callable[[Conversation], Awaitable[T]]) -> T:
        """Act in the caller's session; one that is not known any more is opened again, once."""
        try:
            return await self._in_session(who, act)
        except (SessionMissing, SessionUnknown):
            return await self._in_session(who, act)

    async def _in_session(self, who: Who, act: Callable[[Conversation], Awaitable[T]]) -> T:
        key = self._key_of(who)
        session = self._take(key)
        session.busy += 1
        try:
            await self._open(session, key, who)
            return await act(session)
        except (SessionMissing, SessionUnknown):
            self._forget(key, session)
            raise
        except UpstreamBroken:
            # Perhaps it speaks another era by now. A session stays, for there are files in it.
            if session.era is Era.MODERN:
                self._found = None
                self._forget(key, session)
            raise
        finally:
            session.busy -= 1
            self._note_use(session)
            if not session.is_ready and not session.busy:
                self._forget(key, session)
            # One that other processes know goes on there.
            if not session.busy and self._sessions.get(key) is not session and self._rows is None:
                self.background.run(session.close())

    def _key_of(self, who: Who) -> CallerKey:
        party = party_of(who.caller) if self.server.apart else who.principal
        return CallerKey(who.principal, who.tab, party, who.answers)

    def _note_use(self, session: Conversation) -> None:
        session.used = self.sessions.clock()
        kept = session.session
        known = None if kept is None else self.sessions.known(session_key(kept.id))
        if self._rows is None or kept is None or known is None:
            return
        if known.idle is None or known.idle < self.bounds.idle:
            # A process that made room has left it to end soon, or an earlier build has opened it.
            self.background.run(self._rows.keep(kept))

    async def _open(self, session: Conversation, key: CallerKey, who: Who) -> None:
        """Have the session be open, once for all who come at once. Raises AdapterError."""
        async with session.opening:
            if session.is_ready:
                return
            if self._rows is None or session.era is Era.MODERN:
                await session.open(who, self.bounds.idle)
            else:
                await self._open_for_all(self._rows, session, key, who)
            session.is_ready, self._found = True, session.era

    async def _open_for_all(
        self, rows: SessionRows, conversation: Conversation, key: CallerKey, who: Who
    ) -> None:
        """Go on in the session that another process has opened for this caller, or open the one for all."""
        version, kept = await rows.find(key)
        if kept is None:
            # It is open if the store failed before the row was written.
            if not conversation.is_open:
                await conversation.open(who, self.bounds.idle)
            own = conversation.session
            if own is None or await rows.add(key, own, version):
                return
            self.background.run(self._in(own).close())
            _, kept = await rows.find(key)
            if kept is None:
                raise SessionUnknown()
        conversation.adopt(kept)

    def _in(self, kept: KeptSession) -> Conversation:
        """A conversation in a session that is open."""
        conversation = Conversation(self.relay, self.server, Era.LEGACY, self.background)
        conversation.adopt(kept)
        return conversation

    async def _leave(self, session: Conversation) -> None:
        """Do without a session. It ends at once, or soon where other processes may be using it."""
        kept = session.session
        with suppress(AdapterError):
            if self._rows is None or kept is None or await self._rows.give_up(kept):
                await session.close()

    def _take(self, key: CallerKey) -> Conversation:
        session = self._sessions.get(key)
        if session is not None and self._rows is not None and self._is_idle(session):
            # Another process may be ending it.
            self._forget(key, session)
            session = None
        if session is None:
            self._make_room()
            session = self._sessions[key] = Conversation(
                self.relay,
                self.server,
                self.era() or self._found,
                self.background,
                answers=key.answers,
                first_id=1 if self._rows is None else _first_id(),
            )
            session.used = self.sessions.clock()
        self._sessions.move_to_end(key)
        return session

    def _is_idle(self, session: Conversation) -> bool:
        """Tell whether it is found anew by its next use. Where other processes may end it that is earlier, for they
        learn of uses late; but that one is written at once.
        """
        idle = self.bounds.idle if self._rows is None else self.bounds.idle * (1 - SOON)
        return not session.busy and self.sessions.clock() - session.used >= idle

    def _may_keep_stream(self, session: Conversation) -> bool:
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
        self.background.run(self._leave(session))

    def _forget(self, key: CallerKey, session: Conversation) -> None:
        """Let the next request begin anew; who uses the session last closes it."""
        session.listening.let_go()
        if self._sessions.get(key) is session:
            del self._sessions[key]

    async def tidy(self) -> None:
        """Forget the sessions that have been idle, which the cleanup of all sessions ends. Raises StoreUnavailable."""
        for key, session in list(self._sessions.items()):
            if session.busy:
                self._note_use(session)
            elif self._is_idle(session):
                self._forget(key, session)
        if self._rows is not None:
            await self._rows.tidy(self._sessions)

    async def close(self, within: float) -> None:
        """Close the sessions that no other process can go on in, upstream as far as that takes no longer than
        ``within`` seconds.
        """
        sessions, self._sessions = self._sessions, OrderedDict()
        for session in sessions.values():
            session.listening.let_go()
        if self._rows is None:
            await asyncio.gather(*(each.close(within) for each in sessions.values()))


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
