"""The names of tools that labels may have: those of real tools, as far as there is room for them."""

from __future__ import annotations

from collections.abc import Iterable

from adapter.errors import BadJson
from adapter.rules.metrics.catalogue import OTHER
from adapter.wire.envelope import parse

MOST_NAMES = 128
"""Names of one server's tools."""

LONGEST_NAME = 128
"""Characters of a name."""


class ToolNames:
    """The names of one server's tools, beginning with those that the settings ``configured``.

    A client may call a tool by any name, so a name counts as one only when its server has listed it, or has answered a
    call of it with a result that is no error.
    """

    def __init__(self, configured: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self.learn(configured)

    def __repr__(self) -> str:
        return f"<ToolNames: {len(self._known)}>"

    @property
    def full(self) -> bool:
        """Tell whether no other name will be taken."""
        return len(self._known) >= MOST_NAMES

    def learn(self, names: Iterable[str]) -> None:
        """Take names of tools that exist."""
        for name in names:
            if self.full:
                return
            if 0 < len(name) <= LONGEST_NAME:
                self._known.add(name)

    def knows(self, name: str) -> bool:
        """Tell whether a name is taken."""
        return name in self._known

    def label(self, name: str | None) -> str:
        """The label of a tool that is called so."""
        return name if name in self._known and name is not None else OTHER


def names_in_list(response: bytes) -> list[str]:
    """The names of the tools in a response to ``tools/list``; none in anything else."""
    try:
        message = parse(response)
    except BadJson:
        return []
    result = message.get("result") if isinstance(message, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    names = [each.get("name") for each in tools if isinstance(each, dict)] if isinstance(tools, list) else []
    return [name for name in names if isinstance(name, str)]
