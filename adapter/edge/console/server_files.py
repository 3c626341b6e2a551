"""The files that a caller of the console can give to one server's tools: those of its session there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapter.edge.console.status import Belongings

MOST_FILES = 100
"""Files that are offered, those that came last."""


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Reads the files. ``limit`` is the size that an upload may have in bytes."""

    belongings: Belongings
    limit: int

    async def of(self, principal: str, session_key: str | None) -> dict[str, Any]:
        """See CallerFiles."""
        scope = self.belongings.scopes.of_key(session_key, principal)
        files = await self.belongings.files_of(scope.id, MOST_FILES)
        return {"limit": self.limit, "files": files}
