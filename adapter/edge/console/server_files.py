"""The files that a caller of the console can give to one server's tools: those of its session there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapter.edge.console.status import Belongings
from adapter.relay.sessions.session_map import Sessions

MOST_FILES = 100
"""Files that are offered, those that came last."""


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Reads the files. ``limit`` is the size that an upload may have in bytes."""

    belongings: Belongings
    sessions: Sessions
    limit: int

    async def of(self, principal: str, session_key: str | None) -> dict[str, Any]:
        """See CallerFiles."""
        opened = self.sessions.opened() if session_key is not None else ()
        session = next((each for each in opened if each.key == session_key), None)
        scope = self.belongings.scopes.of(session, principal)
        files = await self.belongings.files_of(scope.id, MOST_FILES)
        return {"limit": self.limit, "files": files}
