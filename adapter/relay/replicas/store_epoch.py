"""The epoch of a shared store: whether it still is the one that this process knows, or has lost its data meanwhile.

A store that is restarted without its data, emptied, or replaced behind its address looks like any other one. So it has
a row with a random value that is written once. Whoever finds another value, or none, knows that rows are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

from structlog.typing import FilteringBoundLogger

from adapter.errors import StoreUnavailable
from adapter.state.port import ABSENT, Conflict, Store, StoreListener, store_only

TABLE = "epoch"
KEY = "epoch"

INTERVAL = 3.0
"""Seconds between two looks at the row, where nothing gives a reason for an earlier one."""

PACE = 0.5
"""Seconds between two looks at least: some stores give a reason all the time."""


class StoreEpoch(StoreListener):
    """Looks at the row of the epoch. A StoreListener; ``clock`` gives Unix time in seconds.

    ``shared`` are awaited with each look, to have what all processes hold in common be what the store says; what it has
    lost, whoever holds it writes again. ``on_loss`` are called when the store has lost rows; they return at once.
    """

    def __init__(self, store: Store, clock: Callable[[], float], log: FilteringBoundLogger) -> None:
        self.shared: list[Callable[[], Awaitable[None]]] = []
        self.on_loss: list[Callable[[], None]] = []
        self.losses = 0
        self.last_loss = 0.0
        self._store = store
        self._clock = clock
        self._log = log
        self._value: bytes | None = None
        self._looking = asyncio.Lock()
        self._doubt = asyncio.Event()
        store.listeners.append(self)

    def __repr__(self) -> str:
        return f"<StoreEpoch: {self.losses} losses>"

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            self._doubt.clear()
            try:
                await self.look()
            except StoreUnavailable:
                # Who watches the store tells of it.
                pass
            except Exception:
                self._log.exception("what replicas have in common could not be compared")
            await asyncio.sleep(PACE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL - PACE):
                    await self._doubt.wait()

    async def look(self) -> None:
        """Look at the row now. Raises StoreUnavailable, also while others go on in memory."""
        with store_only():
            async with self._looking:
                value = await self._read()
                await asyncio.gather(*(share() for share in self.shared))
                before, self._value = self._value, value
                if before not in (None, value):
                    self.lost()

    async def _read(self) -> bytes:
        """The value of the row, which is written now where there is none."""
        row = await self._store.get(TABLE, KEY)
        if row is None:
            with contextlib.suppress(Conflict):
                return (await self._store.put(TABLE, KEY, secrets.token_bytes(16), expected=ABSENT)).value
            return await self._read()
        return row.value

    def lost(self, *, is_older: bool = False) -> None:
        """Have everybody forget what they know of the store. ``is_older``: an older state of it is back."""
        self.losses += 1
        self.last_loss = self._clock()
        why = "an older state of it is back" if is_older else "another one is there, or an empty one"
        self._log.warning("the state store has lost its data", why=why, setting="state_persistence")
        for listener in self.on_loss:
            try:
                listener()
            except Exception:
                # The others must hear of it all the same: nobody looks again at this epoch.
                self._log.exception("rows that are gone could not be forgotten")

    # --- words of the store -----------------------------------------------------------------------------------

    def rows_unknown(self) -> None:
        """See StoreListener: the connection may lead to another store now."""
        self._doubt.set()
