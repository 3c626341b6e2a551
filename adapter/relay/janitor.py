"""What time does to sessions: last-seen times are written, idle ones rest, ended ones are closed upstream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from adapter.errors import AdapterError
from adapter.relay.answers import read_body
from adapter.relay.mapping import Mapping
from adapter.relay.parking import Parking
from adapter.relay.server import Servers
from adapter.relay.sessions import Sessions
from adapter.rules.sessions import SessionRecord, SessionState
from adapter.state.port import Row


@dataclass(slots=True)
class Janitor:
    """Goes round every ``interval`` seconds until cancelled. ``errands`` are what others want done then."""

    sessions: Sessions
    mapping: Mapping
    parking: Parking
    servers: Servers
    interval: float
    log: FilteringBoundLogger
    errands: tuple[Callable[[], Awaitable[None]], ...] = ()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.interval)
            try:
                await self.go_round()
            except AdapterError as error:
                self.log.warning("the janitor could not finish its round", why=str(error))
            except Exception:
                # A defect in one round must not end all later ones.
                self.log.exception("the janitor's round failed unexpectedly")

    async def go_round(self) -> None:
        """One round. Raises StoreUnavailable; an upstream that fails is left for the next round."""
        await self.sessions.write_last_seen()
        overdue = await self.sessions.overdue()
        await asyncio.gather(*(self._tend(row, record) for row, record in overdue))
        await self.parking.expire()
        for errand in self.errands:
            await errand()

    async def _tend(self, row: Row, record: SessionRecord) -> None:
        if record.state is SessionState.OPEN:
            # Closed first: if the client comes back in between, the upstream's 404 renews its session.
            if self.sessions.is_idle(row.key) and await self._close_upstream(record):
                await self.sessions.lay_to_rest(row, record)
            else:
                await self.sessions.put_off(row, self.interval)
        elif await self._close_upstream(record):
            await self.sessions.closed(row)
        else:
            await self.sessions.put_off(row, self.interval)

    async def _close_upstream(self, record: SessionRecord) -> bool:
        """Whether there is nothing left to close. A server no longer configured cannot be asked."""
        server = self.servers.get(record.server)
        if server is None:
            return True
        try:
            reply = await self.mapping.close(server, record)
            if reply is not None:
                await read_body(reply, server.silence.request)
        except AdapterError as error:
            self.log.info("an upstream session is still to be closed", server=server.id, why=error.code)
            return False
        return reply is None or reply.status < 500
