"""The adapter session of one caller over HTTP, which other processes may have opened and may go on in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from adapter.errors import StoreUnavailable
from adapter.relay.http_api.callers import Who
from adapter.relay.http_api.conversation import Conversation
from adapter.relay.http_api.listening import SharedListening
from adapter.relay.http_api.session_rows import CallerKey, KeptSession, SessionRows
from adapter.state.port import ABSENT
from adapter.wire.eras import Era

IDLE = 600.0
"""Seconds after which a session that nobody used is closed."""

TOLD = 0.25
"""The part of that time after which the other processes are told again that a session is in use."""


class CallerSession:
    """One caller's session. ``used`` and ``listed`` are moments of the clock; ``busy`` counts who is using it.

    ``rights`` are those with which the tools were listed: tokens of one principal may have different scopes.
    ``is_shared``: ``rows`` tell the other processes of it, and every ``pace`` seconds that it is in use.
    """

    def __init__(
        self,
        key: CallerKey,
        conversation: Conversation,
        clock: Callable[[], float],
        rows: SessionRows | None,
        pace: float,
    ) -> None:
        self.key = key
        self.conversation = conversation
        self.listening = SharedListening(conversation)
        self.used = clock()
        self.busy = 0
        self.tools: Sequence[dict[str, Any]] = ()
        self.places: Mapping[str, int] = {}
        self.listed = float("-inf")
        self.rights: object = None
        self.is_ready = False
        self.is_shared = False
        self._opening = asyncio.Lock()
        self._clock = clock
        self._rows = rows
        self._pace = pace
        self._told = float("-inf")
        self._version = ABSENT

    def __repr__(self) -> str:
        return f"<CallerSession of {self.conversation!r}: {self.busy} busy>"

    def known(self, name: str) -> dict[str, Any] | None:
        """The tool of that name on the list that was read last."""
        place = self.places.get(name)
        return self.tools[place] if place is not None else None

    async def open(self, who: Who) -> KeptSession | None:
        """Open it, once for all who come at once. Returned is a session that turned out to be one too many.

        Raises AdapterError.
        """
        async with self._opening:
            surplus = None
            if not self.is_ready:
                if self._rows is not None and self.conversation.era is not Era.MODERN:
                    surplus = await self._open_shared(who, self._rows)
                elif not self.conversation.is_open:
                    await self.conversation.open(who)
                self.is_ready = True
            return surplus

    async def _open_shared(self, who: Who, rows: SessionRows) -> KeptSession | None:
        """Go on in the session that another process has opened for this caller, or open the one for all."""
        kept, own = None, None
        if not self.conversation.is_open:
            kept = await rows.take(self.key)
        if kept is None:
            # It is open if the store failed before it was kept.
            if not self.conversation.is_open:
                await self.conversation.open(who)
            own = self.conversation.kept(self.key.principal)
            if own is None:
                return None
            kept, self._version = await rows.keep(self.key, own)
        self._told = self._clock()
        self.conversation.adopt(kept)
        self.is_shared = True
        return None if own == kept else own

    async def tell_use(self) -> None:
        """Let the other processes know, from time to time, that it is in use."""
        if self._rows is not None and self.is_shared and self._clock() - self._told >= self._pace:
            self._told = self._clock()
            with suppress(StoreUnavailable):
                await self._rows.used(self.key)

    async def forget(self) -> None:
        """Have no process go on in it, because it is over."""
        kept = self.conversation.kept(self.key.principal)
        if self._rows is not None and self.is_shared and kept is not None:
            with suppress(StoreUnavailable):
                await self._rows.forget(self.key, kept.id)

    async def leave(self) -> None:
        """Leave it to the other processes, and end it where none of them finds it any more."""
        kept = self.conversation.kept(self.key.principal)
        if self._rows is not None and self.is_shared and kept is not None:
            with suppress(StoreUnavailable):
                if await self._rows.is_lost(self.key, kept.id):
                    await self.conversation.close(self.key.principal)

    async def give_up(self) -> None:
        """Do without it. It ends at once, unless other processes may be using it."""
        kept = self.conversation.kept(self.key.principal)
        if self._rows is not None and self.is_shared and kept is not None:
            try:
                if not await self._rows.give_up(self.key, kept.id, self._version):
                    return
            except StoreUnavailable:
                return
        await self.conversation.close(self.key.principal)
