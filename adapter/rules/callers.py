"""Who makes a call, as stages and the authors of scripts see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from adapter.rules.principals import ANONYMOUS

Entrance = Literal["mcp", "http"]
"""By which door a call came: MCP, or the HTTP tool API."""


@dataclass(frozen=True, slots=True)
class Caller:
    """``fields`` are the header fields of the client's request by name in any spelling; of several the first."""

    principal: str = ANONYMOUS
    entrance: Entrance = "mcp"
    fields: Mapping[str, str] = field(default_factory=dict)

    def lower_fields(self) -> dict[str, str]:
        """The fields by their names in lower case."""
        return {name.lower(): value for name, value in self.fields.items()}


NOBODY = Caller()
"""Who makes the calls that the adapter makes by itself."""
