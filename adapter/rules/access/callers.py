"""The caller of a tool, as stages and the authors of scripts see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from adapter.rules.access.principals import ANONYMOUS

SESSION_ID = "mcp-session-id"

Entrance = Literal["mcp", "http"]
"""By which door a call came: MCP, or the HTTP tool API."""


@dataclass(frozen=True, slots=True)
class Caller:
    """``fields`` are the header fields of the client's request by name in any spelling; of several the first.

    ``withheld`` names those, in lower case, that carried the adapter's own token.
    """

    principal: str = ANONYMOUS
    entrance: Entrance = "mcp"
    fields: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()

    def lower_fields(self) -> dict[str, str]:
        """The fields by their names in lower case."""
        return {name.lower(): value for name, value in self.fields.items()}

    def told_fields(self) -> dict[str, str]:
        """The fields that the user's own code may know, by their names in lower case.

        Whoever has the adapter's token, or where there is none the id of a session, can act as this caller.
        """
        return {
            name: value
            for name, value in self.lower_fields().items()
            if name not in self.withheld and name != SESSION_ID
        }


NOBODY = Caller()
"""Who makes the calls that the adapter makes by itself."""
