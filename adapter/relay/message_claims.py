"""Messages that several replicas could send to a client, each sent by one of them.

A server must not send one message on several streams (MCP 2025-11-25, streamable HTTP, "Multiple Connections"), and the
replicas are one server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from adapter.state.paging import delete_overdue
from adapter.state.port import ABSENT, Conflict, Store

TABLE = "notices"

CLAIMED = 60.0
"""Seconds for which it is remembered that a session has got a message."""


class MessageClaims:
    """The messages that sessions have got, by the ids of both. ``clock`` gives Unix time in seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    async def claim(self, session: str, message: str) -> bool:
        """Tell whether this replica is to send the message to that session. Raises StoreUnavailable."""
        key = f"{session}/{message}"
        with contextlib.suppress(Conflict):
            await self._store.put(TABLE, key, b"", expected=ABSENT, due=self._clock() + CLAIMED)
            return True
        return False

    async def tidy(self) -> None:
        """Forget claims after a while. Raises StoreUnavailable."""
        await delete_overdue(self._store, TABLE, self._clock())
