"""The open sessions of earlier processes that this one has not used: they are counted, and read when they are used."""

from __future__ import annotations

from adapter.rules.access.sessions import OPEN_MARK, SessionRecord, SessionState
from adapter.state.port import Store


class EarlierSessions:
    """``count`` is their number; another process that shares the store may end some without this one's knowing."""

    def __init__(self) -> None:
        self.count = 0
        self._until = float("-inf")

    def __repr__(self) -> str:
        return f"<EarlierSessions: {self.count}>"

    async def load(self, store: Store, table: str, now: float) -> None:
        """Count the sessions that are open in the store at ``now`` (Unix seconds). Raises StoreUnavailable."""
        self._until = now
        self.count = await store.count(table, holding=OPEN_MARK)

    def leave(self, record: SessionRecord) -> None:
        """Count a session no more: this process knows it from now on, or it is not open any more."""
        if record.state is SessionState.OPEN and record.times.created <= self._until and self.count:
            self.count -= 1
