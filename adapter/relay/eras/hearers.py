"""The replicas that hear a server's own stream in a shared session: many servers have one such stream for a session."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from adapter.errors import StoreUnavailable
from adapter.relay.eras.parked_calls import ParkedCalls
from adapter.rules.access.sessions import membership
from adapter.state.port import delete_overdue

TABLE = "hearers"
"""The table of the hearers' names, by the server and the session's key."""

REMEMBERED = 30 * 86400.0
"""Seconds after which the row of one that has gone may be deleted."""


@dataclass(frozen=True, slots=True)
class Hearers:
    """Those of the sessions at ``server``; this replica is the owner of the ``parked`` calls."""

    server: str
    parked: ParkedCalls

    async def of(self, session_id: str | None) -> str:
        """The replica that hears the session, as far as is known; "" if none does."""
        part = membership(session_id)
        row = None if part is None else await self.parked.store.get(TABLE, f"{self.server}/{part.key}")
        return "" if row is None else row.value.decode()

    async def note(self, session_id: str | None) -> None:
        """Have the others know that this replica hears the session, if there are any."""
        part, parked = membership(session_id), self.parked
        if part is None or not parked.owner:
            return
        now, key = parked.clock(), f"{self.server}/{part.key}"
        with contextlib.suppress(StoreUnavailable):
            await parked.store.put(TABLE, key, parked.owner.encode(), due=now + REMEMBERED)
            await delete_overdue(parked.store, TABLE, now)
